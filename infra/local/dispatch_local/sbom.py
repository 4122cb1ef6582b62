"""The bill of materials of the controller's image, as CycloneDX: what it has on top of its base image."""

from __future__ import annotations

import hashlib
import uuid
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.metadata import RawMetadata, parse_email
from packaging.utils import canonicalize_name

FILE: Final = "sbom.cdx.json"


def bill(image: str, version: str, wheels: Sequence[Path]) -> str:
    """Return the bill for an image made of these wheels: each with version, licence, package URL and SHA-256.

    The same wheels give the same text: no time, and a serial number that comes from the hashes.
    """
    parts = [_part(wheel) for wheel in sorted(wheels)]
    whole = Component(name=image, version=version, type=ComponentType.CONTAINER, bom_ref=image)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(hash_.content for part in parts for hash_ in part.hashes))
    bom = Bom(serial_number=serial, metadata=BomMetaData(component=whole), components=parts)
    # Optional in the format: with the time of the build in it, each build would be another image.
    bom.metadata.timestamp = None  # type: ignore[assignment]  # the library's own default is now
    bom.register_dependency(whole, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _part(wheel: Path) -> Component:
    about = _metadata(wheel)
    name, version = about["name"], about["version"]
    url = PackageURL("pypi", None, canonicalize_name(name), version)
    licence = about.get("license_expression") or about.get("license") or ""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=url.to_string(),
        purl=url,
        # Old packages have the whole text there: a name is one line.
        licenses=[LicenseFactory().make_from_string(licence)] if licence and "\n" not in licence else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())],
    )


def _metadata(wheel: Path) -> RawMetadata:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (each for each in files.namelist() if each.endswith(".dist-info/METADATA") and each.count("/") == 1)
        found, _ = parse_email(files.read(name))
    return found
