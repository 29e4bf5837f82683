"""A row in a table of broker settings: short words for what is written most often."""

from penstock.config.settings import Setting, SettingType, Update, Validator, Value

BOOLEAN, INT, LONG, DOUBLE = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG, SettingType.DOUBLE
STRING, LIST, SHORT, PASSWORD = SettingType.STRING, SettingType.LIST, SettingType.SHORT, SettingType.PASSWORD
PER_BROKER, CLUSTER_WIDE = Update.PER_BROKER, Update.CLUSTER_WIDE


def setting(
    name: str,
    type_: SettingType,
    default: Value,
    doc: str,
    valid: Validator | None = None,
    update: Update = Update.READ_ONLY,
    unit: str | None = None,
    internal: bool = False,
) -> Setting:
    if unit is None:
        last = name.rpartition(".")[2]
        unit = last if last in {"ms", "bytes", "minutes", "hours"} else ""
    return Setting(
        name=name,
        type=type_,
        default=default,
        doc=doc,
        validator=valid,
        update=update,
        unit=unit,
        internal=internal,
    )
