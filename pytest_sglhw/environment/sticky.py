"""Which errors outlive their call: after them every call on the device fails, in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: How the runtimes word an error that outlives its call: CUDA and HIP share texts, the rest are by vendor.
_STICKY = re.compile(
    r"""illegal\ memory\ access | illegal\ (?:instruction|address) | misaligned\ address | unspecified\ launch\ failure
    | device-side\ assert | invalid\ (?:program\ counter|address\ space) | hardware\ stack\ error
    | launch\ timed\ out | uncorrectable\ (?:ECC|NVLink) | context\ is\ destroyed
    | (?:hip|cuda)Error(?:IllegalAddress|LaunchFailure|Assert|MisalignedAddress|IllegalInstruction|ECCUncorrectable)
    | CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|ASSERT|MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION)
    | HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_FAULT|MEMORY_APERTURE_VIOLATION) | memory\ access\ fault\ by\ gpu
    | (?:UR_RESULT|PI|ZE_RESULT)_ERROR_DEVICE_LOST | aicore\ (?:exception|execution\ is\ abnormal)
    | vector\ core\ exception | MUSA\ error:\ .*(?:illegal|unspecified)""",
    re.VERBOSE | re.IGNORECASE,
)


def is_sticky(error: BaseException) -> bool:
    """Whether ``error``, one that it came from, or one of a group of them says that the device context is lost."""
    return sticky_error(error) is not None


def sticky_error(error: BaseException) -> RuntimeError | None:
    """The error that says so; ``None`` where none does."""
    errors = (link for link in _behind(error) if isinstance(link, RuntimeError))
    return next((link for link in errors if _STICKY.search(str(link))), None)


def _behind(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        link = waiting.pop()
        if isinstance(link, BaseException) and id(link) not in seen:
            seen.add(id(link))
            yield link
            members = getattr(link, "exceptions", ())  # a group's; Python 3.10 has none, but a backport
            waiting += [link.__cause__ or link.__context__, *(members if isinstance(members, (tuple, list)) else ())]
