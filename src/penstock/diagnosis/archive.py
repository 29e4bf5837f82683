"""Doctor: does retention pile up what an archive does not take?"""

from penstock.diagnosis.findings import Finding, ok, warn
from penstock.diagnosis.ports import health


def archive_findings(host: str, console_port: int) -> list[Finding]:
    """Nothing to say where no broker answers: the check of its port has said that."""
    said = health(host, console_port)
    alarms = said.get("archive_alarms") if said is not None else None
    if not isinstance(alarms, list):
        return []
    check = "archive"
    if not alarms:
        return [ok(check, "no topic waits for it beyond the alarm limit")]
    names = [str(name) for name in alarms]
    shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return [
        warn(
            check,
            f"retention keeps more than penstock.archive.held.bytes.alarm for it: {shown}",
            f"run `penstock pipeline archive --topic {names[0]} --to URI`, or let the data go: "
            f"`penstock topic alter {names[0]} --config penstock.archive.required=false`",
        )
    ]
