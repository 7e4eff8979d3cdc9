"""The reference's views: words of any width read and write the same bytes as a loop over single bytes."""

from __future__ import annotations

import itertools
import random

import pytest

torch = pytest.importorskip("torch")

from pytest_sglhw.conformance.layouts import AXES, Extents, is_paged, offset  # noqa: E402
from pytest_sglhw.conformance.reference import LogicalView, transfer  # noqa: E402
from pytest_sglhw.conformance.tensors import same_bytes  # noqa: E402


def _pool(layout, head_bytes, start, seed):
    pages = 3 if is_paged(layout) else 2
    extents = Extents(layers=3, tokens=4 * pages, heads=2, head_bytes=head_bytes, page_size=4)
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (start + extents.nbytes + 5,), dtype=torch.uint8, generator=generator)
    return image, extents


@pytest.mark.parametrize(("source", "destination"), list(itertools.product(AXES, AXES)))
@pytest.mark.parametrize("head_bytes", [1, 2, 4, 6, 8, 24])
@pytest.mark.parametrize("starts", [(0, 0), (8, 3), (2, 16), (4, 4)])
def test_rows_move_byte_by_byte(source, destination, head_bytes, starts):
    """A transfer between two layouts, at any alignment, is the assignment of each byte."""
    (from_image, of), (to_image, to) = (
        _pool(layout, head_bytes, start, start) for layout, start in zip((source, destination), starts, strict=True)
    )
    rng, rank = random.Random(head_bytes), (2, 0, 1)
    reads, writes = (rng.sample(range(min(of.tokens, to.tokens)), 5) for _ in range(2))
    want = to_image.clone()
    for layer, (read, write), head, byte in itertools.product(
        (0, 2), zip(reads, writes, strict=True), range(2), range(head_bytes)
    ):
        at = starts[1] + offset(destination, to, rank[layer], write, head, byte)
        want[at] = from_image[starts[0] + offset(source, of, rank[layer], read, head, byte)]

    transfer(
        LogicalView(from_image, starts[0], source, of, rank, 2),
        LogicalView(to_image, starts[1], destination, to, rank, 2),
        (0, 2),
        torch.tensor(reads),
        torch.tensor(writes),
    )

    assert same_bytes(to_image, want)


def test_no_tokens_are_rows_too():
    """Nothing is read as rows of bytes, and writing nothing changes nothing."""
    image, extents = _pool("page_head", 8, 0, 1)
    before, view, none = image.clone(), LogicalView(image, 0, "page_head", extents, (0, 1, 2), 2), torch.tensor([])
    rows = view.read((0, 1), none.long())

    view.write((0, 1), none.long(), rows)

    assert rows.shape == (2, 0, 2, 8)
    assert rows.dtype == torch.uint8
    assert same_bytes(image, before)


@pytest.mark.parametrize("size", [1, 7, 8, 4096])
def test_any_byte_tells_two_images_apart(size):
    """Equal bytes are the same, one other byte anywhere is not, nor is another length."""
    first = torch.randint(0, 256, (size,), dtype=torch.uint8)

    assert same_bytes(first, first.clone())
    assert not same_bytes(first, torch.cat([first, first[:1]]))
    for at in {0, size // 2, size - 1}:
        other = first.clone()
        other[at] ^= 1
        assert not same_bytes(first, other)
        assert not same_bytes(first.repeat_interleave(2)[::2], other)  # not contiguous
