"""Installed packages: what must work, and what optional ones would add."""

from importlib.util import find_spec

from vcycle.runs.doctor.finding import Finding
from vcycle.utils.extras import OPTIONAL, NotInstalledError, require
from vcycle.utils.versions import pip_torchvision

__all__ = ["decoders", "optional", "torch_works"]

_CODECS = {"h264": "H.264", "hevc": "HEVC", "vp9": "VP9", "av1": "AV1", "mpeg4": "MPEG-4", "mjpeg": "JPEG"}


def torch_works() -> Finding:
    """Whether PyTorch can be imported."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        change = "install the build of torch for this machine again"
        return Finding(level="stop", about="torch", found=f"cannot be imported: {cause}", change=change)
    return Finding(level="ok", about="torch", found=torch.__version__)


def decoders() -> list[Finding]:
    """Whether PyAV can be imported, and which codecs it decodes."""
    try:
        from av import Codec
        from av.error import FFmpegError
    except (ImportError, OSError) as error:
        words = f"PyAV, which decodes videos, cannot be imported: {error}"
        return [Finding(level="stop", about="decoder", found=words, change="pip install --force-reinstall av")]
    missing = []
    for codec, name in _CODECS.items():
        try:
            Codec(codec, "r")
        except (FFmpegError, ValueError):
            missing.append(name)
    have = ", ".join(name for name in _CODECS.values() if name not in missing)
    if missing:
        words = f"PyAV decodes {have}, but not {', '.join(missing)}"
        change = "the wheel of PyAV decodes all: pip install --force-reinstall --no-deps av"
        return [Finding(level="slow", about="decoder", found=words, change=change)]
    return [Finding(level="ok", about="decoder", found=f"PyAV decodes {have}")]


def optional(*, torch_works: bool) -> list[Finding]:
    """What is not installed and would add something, and torchvision where it does not suit torch."""
    findings = []
    if torch_works and find_spec("torchvision") is not None:
        try:
            require("torchvision", "torchvision's models need")
        except NotInstalledError as error:
            findings.append(
                Finding(level="slow", about="torchvision", found=str(error).partition(":")[0], change=pip_torchvision())
            )
    absent = [f"{library} ({use})" for library, use in OPTIONAL.items() if find_spec(library) is None]
    if absent:
        words = f"not installed: {', '.join(absent)}"
        findings.append(Finding(level="ok", about="optional", found=words))
    else:
        findings.append(Finding(level="ok", about="optional", found="all libraries are installed"))
    return findings
