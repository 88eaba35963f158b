"""Signing a record once it is measured and saved: nothing that fails here costs the run."""

from __future__ import annotations

from npumark.errors import NpumarkError
from npumark.orchestrator.events import Listener, Note
from npumark.record.files import write_record
from npumark.record.history import RunFolder
from npumark.record.model import Record

_LATER = "`npumark submit` signs what it sends anew."


def sign_saved(folder: RunFolder, record: Record, tell: Listener) -> Record:
    """Sign the record that lies in ``folder``, write it again and return it.

    Where that is not possible it stays as it is, and a note says why.
    """
    try:
        # Here, as what signs needs libraries that a computer may lack or hold damaged.
        from npumark.record import keystore, signed

        first = keystore.describe() is None
        whole = signed.sign(record)
        info = keystore.describe() if first else None
        write_record(folder.record, whole, force=True)
    except KeyboardInterrupt:
        raise
    except BaseException as fault:  # noqa: BLE001 - a library's panic as well: the run is saved
        tell(Note(_why_not(fault)))
        return record
    if info is not None:
        more = f"; {info.notice}" if info.notice else f", kept by {info.place}"
        tell(Note(f"this installation signs with a key of its own from now on{more}"))
    return whole


def _why_not(fault: BaseException) -> str:
    if isinstance(fault, NpumarkError):
        return " ".join(
            filter(None, (f"the record is not signed: {fault.message}.", fault.hint, _LATER))
        )
    return f"the record is not signed: {type(fault).__name__}: {fault}. {_LATER}"
