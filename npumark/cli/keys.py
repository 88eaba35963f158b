"""``npumark keys``: show or replace the key that signs this installation's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import output
from npumark.cli.ask import ask

if TYPE_CHECKING:
    from npumark.machine.machine_id import MachineId
    from npumark.record.key_info import FormerKey, KeyInfo

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Show or replace the key that signs this computer's records.",
)

_MACHINE = (
    "A results server counts the keys of one machine by it; it travels with an upload, outside "
    "what is published, and stands in no record."
)


@app.command()
def show(
    as_json: Annotated[
        bool, typer.Option("--json", help="Put one JSON document on standard output.")
    ] = False,
    with_machine: Annotated[
        bool, typer.Option("--machine-id", help="Show the machine ID as well.")
    ] = False,
) -> None:
    """Show the key, where it is kept, and the kind of build.

    Nothing secret is shown. Exit status: 0, also where no key was made yet; 2 or 5 where there is
    one and it cannot be used, which is said with what to do.
    """
    from npumark.errors import NpumarkError
    from npumark.machine.machine_id import identify
    from npumark.record.build_key import build_key
    from npumark.record.keystore import describe, install_key

    info = describe()
    build = build_key()
    machine = identify() if with_machine else None
    fault: NpumarkError | None = None
    if info is not None:
        try:
            install_key()
        except NpumarkError as refused:
            fault = refused
    build_id = build.key_id if build else None
    if as_json:
        why = fault.message if fault else None
        output.put_json(_document(info, why, build_id, machine))
    else:
        output.put("".join(f"{line}\n" for line in _lines(info, build_id, machine)))
    if fault is not None:
        raise fault


@app.command()
def rotate(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Replace the key and remove the old private half.

    Records that were signed before stay signed, and uploaded results stay this machine's. A server
    takes up to eight keys of a machine; a ninth has to wait a day and replaces the oldest.
    """
    from npumark.record.keystore import describe
    from npumark.record.keystore import rotate as replace

    if not yes:
        ask(
            "Replace this installation's key?",
            nobody="replacing the key needs a yes",
            hint="Give --yes.",
            declined="the key was not replaced",
        )
    key = replace()
    info = describe()
    lines = [f"new key {key.key_id}, kept in {info.place if info else 'an unknown place'}"]
    if info is not None and info.former:
        old = info.former[-1]
        gone = "its private half is removed" if old.removed else _left(old)
        lines.append(f"old key {old.key_id}: {gone}")
    output.put("".join(f"{line}\n" for line in lines))


def _left(old: FormerKey) -> str:
    from npumark.record.key_info import file_of
    from npumark.record.platform_keystore import SERVICE, title

    if old.where == "file":
        return f"its private half could not be removed; delete {file_of(old.key_id)} by hand"
    return (
        f"its private half could not be removed; delete the entry {old.key_id} of {SERVICE} by "
        f"hand from {title()}"
    )


def _lines(info: KeyInfo | None, build: str | None, machine: MachineId | None) -> list[str]:
    lines = ["no key was made yet; the first run that is signed makes one"]
    if info is not None:
        lines = [
            f"key id      {info.key_id}",
            f"public key  {info.public_key}",
            f"kept in     {info.place}",
            f"created     {info.created}",
        ]
        lines += [f"former key  {k.key_id}, {k.created} to {k.retired}" for k in info.former]
    kind = f"release, build key {build}" if build else "development, without a build key"
    lines.append(f"build       {kind}")
    if machine is not None:
        drawn = f" Drawn at random and kept by npumark, as {machine.why}." if machine.why else ""
        lines += [f"machine id  {machine.value}", f"{_MACHINE}{drawn}"]
    if info is not None and info.notice:
        lines.append(f"note: {info.notice}")
    return lines


def _document(
    info: KeyInfo | None, why: str | None, build: str | None, machine: MachineId | None
) -> dict[str, Any]:
    document: dict[str, Any] = {"key": None}
    if info is not None:
        document["key"] = {
            **info.model_dump(mode="json", by_alias=True),
            "place": info.place,
            "usable": why is None,
            "why_not": why,
        }
    document["build"] = {"kind": "release" if build else "development", "key_id": build}
    if machine is not None:
        document["machine_id"] = machine.value
        document["machine_id_why"] = machine.why
    return document
