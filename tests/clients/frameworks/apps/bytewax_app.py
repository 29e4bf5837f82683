"""bytewax: repeats every message in capital letters. Arguments: bootstrap, name, source, target, directory."""

import sys
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

bootstrap, name, source, target, directory = sys.argv[1:]
progress = Path(directory)
if not any(progress.iterdir()):
    init_db_dir(progress, 1)

flow = Dataflow(name)
read = kafka.input("read", flow, brokers=[bootstrap], topics=[source])
shouted = op.map("shout", read.oks, lambda message: KafkaSinkMessage(message.key, message.value.upper()))
kafka.output("write", shouted, brokers=[bootstrap], topic=target)
cli_main(flow, epoch_interval=timedelta(seconds=0.2), recovery_config=RecoveryConfig(progress))
