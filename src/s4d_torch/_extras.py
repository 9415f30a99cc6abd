"""Packages that only some features need: what to say when one is not installed."""


def missing_package(feature: str, package: str, extra: str) -> ImportError:
    """The error for a feature whose package comes with an extra of this distribution."""
    return ImportError(
        f"{feature} need {package}, which is not installed; "
        f"install the extra '{extra}': pip install 's4d-torch[{extra}]'"
    )
