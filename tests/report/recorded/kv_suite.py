import pytest

from pytest_sglhw import cuda_only, requires_kv4, requires_kvcacheio, rocm_only


@requires_kvcacheio
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_roundtrip(page_size):
    assert page_size > 0


@requires_kv4
def test_kv4_cache():
    pass


@cuda_only
def test_cuda_graph():
    pass


@rocm_only
def test_rocm_path():
    path = "aiter"
    assert path == "triton", "fell back to the slow path"


@rocm_only
@cuda_only
def test_needs_two_platforms():
    pass


@cuda_only(otherwise="raise", raises=RuntimeError, match="needs CUDA")
def test_refuses_elsewhere():
    raise_it()


def raise_it():
    raise RuntimeError("this path needs CUDA")


@pytest.mark.xfail(reason="not written yet")
def test_later():
    raise NotImplementedError


def test_plain():
    pass
