"""A job's identity: a ULID and the number of the submission, and the one name that they make."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ulid import ULID

# Crockford's alphabet without I, L, O, U. A first letter above 7 does not fit 128 bits: it is refused, never folded.
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_NAME: Final = re.compile(r"dj-([0-7][0-9a-hjkmnp-tv-z]{25})-s(0|[1-9][0-9]{0,8})", re.ASCII)
NAME_PATTERN: Final = f"^{_NAME.pattern}$"
"""The name of every object of ours, as a regular expression that RE2 and Python both read."""
MAX_SUBMISSION: Final = 999_999_999


class IdentityError(ValueError):
    """A ULID or a submission is not valid; the message says what was seen and what is expected."""


def valid_ulid(value: object) -> str:
    """Return `value` as it is, if it is a ULID in upper case; raise `IdentityError` if not."""
    if not isinstance(value, str) or not _ULID.fullmatch(value):
        raise IdentityError(
            f"{value!r} is not a ULID: 26 characters of 0-9 and A-Z without I, L, O and U, the first one 0 to 7, "
            "in upper case, were expected. JobIdentity mints one."
        )
    ULID.from_str(value)
    return value


def ulid_for(minted: str, key: str) -> str:
    """Return the ULID of one of the jobs that share a minted one: the same for the same key, for ever.

    The time is that of the minted one; the 80 bits beside it are those of a hash, as little likely to meet twice.
    Raises `IdentityError` where `minted` is not a ULID.
    """
    shared = ULID.from_str(valid_ulid(minted)).bytes
    return str(ULID.from_bytes(shared[:6] + sha256(shared + key.encode()).digest()[:10]))


def valid_submission(value: object) -> int:
    """Return `value` as an integer of 1 and more; raise `IdentityError` if it is anything else."""
    # The Pulumi engine hands every number over as a float.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(whole, bool) or not isinstance(whole, int) or not 1 <= whole <= MAX_SUBMISSION:
        raise IdentityError(f"submission {value!r}: a whole number from 1 to {MAX_SUBMISSION} was expected.")
    return whole


@dataclass(frozen=True)
class Identity:
    """What a job is called, for ever. Submission 0 is for the probes of preflight alone."""

    ulid: str
    submission: int

    @property
    def name(self) -> str:
        """The name of the TrainJob, and of its JobSet: `dj-<ulid in lower case>-s<N>`."""
        return f"dj-{self.ulid.lower()}-s{self.submission}"

    @classmethod
    def of(cls, ulid: object, submission: object) -> Identity:
        """Make the identity of a job; raise `IdentityError` where either part is not valid."""
        return cls(valid_ulid(ulid), valid_submission(submission))

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """Read a name back, or return None where it is not one of ours."""
        found = _NAME.fullmatch(name)
        return cls(found[1].upper(), int(found[2])) if found else None
