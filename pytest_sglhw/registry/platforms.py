"""Kinds of accelerator, one row each: how torch names it, what shows it on a machine, what masks it, its archs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_sglhw.record import Record


class ArchRule(Record):
    r"""How an arch is read off a device: the first rule that matches wins.

    ``source`` is ``"capability"`` (``major.minor``), ``"name"``, or an attribute of the device's properties;
    ``pattern`` is searched in its text, ``arch`` is the expansion of the match (``r"sm\\1\\2"``).
    """

    source: str
    pattern: str
    arch: str


class Platform(Record):
    """One kind of accelerator. Paths are globs, so that a row can name every device node at once."""

    name: str
    device_type: str
    """torch's device string; ROCm's is ``cuda``."""
    summary: str = ""
    aliases: tuple[str, ...] = ()
    build: str = ""
    """Name in ``torch/version.py`` that is set when torch was built for this platform."""
    api: str = ""
    """Dotted name below ``torch`` that enumerates devices (``cuda``, ``xpu``); empty: no devices to enumerate."""
    dispatch_keys: tuple[str, ...] = ()
    """Dispatch keys under which a native kernel for this platform may be registered."""
    vendor_modules: tuple[str, ...] = ()
    """Packages that add the platform to torch when they are imported (``torch_npu``)."""
    nodes: tuple[str, ...] = ()
    """Device nodes: one match or more means that a driver offers devices to this process."""
    machines: tuple[tuple[str, str], ...] = ()
    """``(sys.platform, machine)`` pairs that by themselves promise such a device (Apple silicon)."""
    hints: tuple[str, ...] = ()
    """Toolkits and shared nodes: worth showing, proof of nothing."""
    toolkits: tuple[str, ...] = ()
    """Toolkit programs that may be on ``PATH``; a toolkit is not a device."""
    drivers: tuple[tuple[str, str], ...] = ()
    """``(glob, pattern)``: files that hold the driver's version, which is the pattern's first group."""
    device_control_env_vars: tuple[tuple[str, ...], ...] = ()
    """Masks in layers. Within a layer the first that is set counts; each layer renumbers for the next."""
    archs: tuple[ArchRule, ...] = ()
    arch_pattern: str = ""
    """What an arch of this platform looks like."""
    arch_example: str = ""
    archs_are_ordered: bool = False
    """Whether ``min_arch`` means something here."""
    origin: str = "built in"


def platform_from_row(row: Mapping[str, Any], origin: str) -> Platform:
    """Build a platform from a row of plain data; each of its ``archs`` is a rule or a row of one."""
    data = dict(row)
    rules = tuple(rule if isinstance(rule, ArchRule) else ArchRule(**rule) for rule in data.pop("archs", ()))
    return Platform(**data, archs=rules, origin=origin)


#: In the order in which they are believed: where torch carries several version strings or enumerates several families,
#: the first row wins (a ROCm build answers ``torch.cuda.is_available()`` and may keep a CUDA version string).
BUILTIN_PLATFORMS = (
    Platform(
        name="rocm",
        summary="AMD GPUs under ROCm",
        aliases=("hip", "amd"),
        device_type="cuda",
        build="hip",
        api="cuda",
        dispatch_keys=("CUDA", "HIP"),
        nodes=("/dev/kfd",),
        hints=("/opt/rocm", "/dev/dxg"),
        toolkits=("hipcc",),
        drivers=(("/sys/module/amdgpu/version", r"(\S+)"),),
        device_control_env_vars=(("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
        archs=(ArchRule("gcnArchName", r"(gfx[0-9a-f]+)", r"\1"),),
        arch_pattern=r"gfx[0-9a-f]{3,4}",
        arch_example="gfx942",
    ),
    Platform(
        name="cuda",
        summary="NVIDIA GPUs",
        aliases=("nvidia",),
        device_type="cuda",
        build="cuda",
        api="cuda",
        dispatch_keys=("CUDA",),
        # The second is WSL2's driver (its node /dev/dxg is shared by all vendors), the rest are Jetson's.
        nodes=("/dev/nvidia[0-9]*", "/usr/lib/wsl/lib/libcuda.so.1", "/dev/nvhost-gpu", "/dev/nvgpu/igpu[0-9]*"),
        hints=("/usr/local/cuda", "/dev/dxg", "/dev/nvidiactl"),
        toolkits=("nvcc",),
        drivers=(
            ("/sys/module/nvidia/version", r"(\S+)"),
            ("/proc/driver/nvidia/version", r"NVRM version:.*?\s(\d+\.\d[\d.]*)\s"),
        ),
        device_control_env_vars=(("CUDA_VISIBLE_DEVICES",),),
        archs=(ArchRule("capability", r"(\d+)\.(\d+)", r"sm\1\2"),),
        arch_pattern=r"sm\d{2,3}[af]?",
        arch_example="sm90",
        archs_are_ordered=True,
    ),
    Platform(
        name="npu",
        summary="Huawei Ascend NPUs",
        aliases=("ascend",),
        device_type="npu",
        api="npu",
        dispatch_keys=("PrivateUse1",),
        vendor_modules=("torch_npu",),
        nodes=("/dev/davinci[0-9]*",),
        hints=("/usr/local/Ascend", "/dev/davinci_manager"),
        toolkits=("npu-smi",),
        drivers=(("/usr/local/Ascend/driver/version.info", r"Version=(\S+)"),),
        device_control_env_vars=(("ASCEND_RT_VISIBLE_DEVICES",),),
        archs=(
            ArchRule("name", r"(?i)ascend_?910_93", "ascend910c"),  # Atlas A3 calls its chip by number
            ArchRule("name", r"(?i)ascend_?(\d+[a-z]?)", r"ascend\1"),
        ),
        arch_pattern=r"ascend\d+[a-z]?",
        arch_example="ascend910b",
    ),
    Platform(
        name="musa",
        summary="Moore Threads GPUs",
        device_type="musa",
        build="musa",
        api="musa",
        dispatch_keys=("PrivateUse1",),
        vendor_modules=("torch_musa",),
        nodes=("/dev/mtgpu[.0-9]*",),
        hints=("/usr/local/musa",),
        toolkits=("mcc",),
        drivers=(("/sys/module/mtgpu/version", r"(\S+)"),),
        device_control_env_vars=(("MUSA_VISIBLE_DEVICES",),),
        archs=(ArchRule("capability", r"(\d+)\.(\d+)", r"mp\1\2"),),
        arch_pattern=r"mp\d{2}",
        arch_example="mp31",
    ),
    Platform(
        name="xpu",
        summary="Intel GPUs",
        aliases=("intel",),
        device_type="xpu",
        build="xpu",
        api="xpu",
        dispatch_keys=("XPU",),
        nodes=("/sys/class/drm/renderD*/device/driver/module/drivers/pci:xe",
                  "/sys/class/drm/renderD*/device/driver/module/drivers/pci:i915"),
        hints=("/opt/intel/oneapi", "/dev/dxg"),
        toolkits=("icpx",),
        drivers=(("/sys/module/xe/srcversion", r"(\S+)"), ("/sys/module/i915/srcversion", r"(\S+)")),
        device_control_env_vars=(("ZE_AFFINITY_MASK",),),
        archs=(
            ArchRule("name", r"Data Center GPU Max", "pvc"),
            ArchRule("name", r"Arc\S* (?:Pro )?B\d+", "bmg"),
            ArchRule("name", r"Arc\S* (?:Pro )?A\d+", "acm"),
        ),
        arch_pattern=r"[a-z][a-z0-9_]*",
        arch_example="bmg",
    ),
    Platform(
        name="hpu",
        summary="Intel Gaudi",
        aliases=("gaudi",),
        device_type="hpu",
        api="hpu",
        dispatch_keys=("HPU", "PrivateUse1"),
        vendor_modules=("habana_frameworks.torch",),
        nodes=("/dev/hl[0-9]*", "/sys/class/accel/accel[0-9]*/device/armcp_kernel_ver"),
        hints=("/usr/lib/habanalabs",),
        toolkits=("hl-smi",),
        drivers=(("/sys/module/habanalabs/version", r"(\S+)"),),
        # HABANA_VISIBLE_DEVICES is read by the container runtime: in a process it stands for what was mounted ("all").
        device_control_env_vars=(("HABANA_VISIBLE_MODULES",),),
        archs=(ArchRule("name", r"(?i)gaudi(\d?)", r"gaudi\1"),),
        arch_pattern=r"gaudi\d?",
        arch_example="gaudi2",
    ),
    Platform(
        name="mps",
        summary="Apple GPUs under Metal",
        aliases=("apple",),
        device_type="mps",
        api="mps",
        dispatch_keys=("MPS",),
        machines=(("darwin", "arm64"),),
        archs=(ArchRule("name", r"Apple (M\d+)", r"\1"),),
        arch_pattern=r"[mM]\d+",
        arch_example="m3",
    ),
    Platform(
        name="cpu",
        summary="no accelerator",
        device_type="cpu",
        dispatch_keys=("CPU",),
    ),
)  # fmt: skip


def platform_named(text: str, platforms: Iterable[Platform]) -> Platform | None:
    """The platform whose name or alias is ``text``, in any case; ``None`` where there is none."""
    wanted = text.strip().lower()
    return next((p for p in platforms if wanted == p.name or wanted in p.aliases), None)


def normal_arch(arch: str) -> str:
    """One spelling of an arch: ``sm_90`` and ``SM90`` are ``sm90``."""
    return arch.strip().lower().replace("_", "")
