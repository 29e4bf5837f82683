"""The composition root: one broker, put together from its parts, started and stopped in the right order.

Nothing below knows every class; this does, together with `service_assembly`. Loop, files, clock, randomness and the
coordination session come from outside, so the same broker runs on uvloop with real files and on the simulated loop with
files in memory.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import CoordinationError, Tree
from penstock.core.endpoints import find_endpoint
from penstock.core.errors import StorageError
from penstock.core.jobs import Jobs
from penstock.core.news import News
from penstock.core.tasks import Tasks
from penstock.frontends.kafka.apis import WarmUp
from penstock.frontends.kafka.dispatcher import KafkaDispatcher
from penstock.frontends.kafka.fetch_sessions import FetchSessions
from penstock.frontends.kafka.hot import HotPath
from penstock.frontends.kafka.hot_fetch import KafkaFetches
from penstock.frontends.kafka.leader_hints import LeaderHints
from penstock.replication.group_commit import GroupCommit
from penstock.replication.table import PartitionTable
from penstock.server.cluster import ClusterMember
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.listener import Listeners
from penstock.server.loop_lag import LoopLag
from penstock.server.membership import Connect
from penstock.server.registrations import hear_of_images, hear_of_roles, hear_of_settings
from penstock.server.seams import Seams
from penstock.server.sending import SendBudget
from penstock.server.service_assembly import assemble_services
from penstock.services.hosting.following import HostingLoop
from penstock.services.hosting.hosting import Hosting
from penstock.services.hosting.log_opening import all_are_open
from penstock.services.maintenance.archive_progress import ArchiveProgressStore
from penstock.services.maintenance.cleaner import Cleaner
from penstock.services.maintenance.disk_watch import DiskWatch
from penstock.services.maintenance.upkeep import Upkeep
from penstock.services.services import Services
from penstock.services.topics.headroom import partitions_max
from penstock.services.transactions.kind import LEVEL
from penstock.storage.clean_stop import make_durable
from penstock.storage.data_dir import DataDir

if TYPE_CHECKING:
    from penstock.coordination.image import ImageDelta
    from penstock.replication.partition import Partition
    from penstock.storage.log import Log

logger = logging.getLogger(__name__)


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        seams: Seams,
        tree: Tree,
        connect: Connect | None = None,
    ) -> None:
        """`connect` opens a new session with the coordination store when the first, `tree`, is over."""
        self._seams = seams
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()  # something that must never end has
        self.broken_by = ""
        self._config = LiveConfig(config, self._listener_failed)
        self.image_news: News[ImageDelta] = News(self._listener_failed)
        self.role_news: News[Partition] = News(self._listener_failed)
        self.metadata = MetadataStore(tree, seams.rng, self.image_news.tell)
        self.data_dir = DataDir(seams.files, Path(config.log_dirs[0]), seams.rng)
        self.table = PartitionTable()
        self._jobs = Jobs(self._loop, seams.executor)
        self.in_thread = partial(self._loop.run_in_executor, seams.executor)
        self._group_commit = GroupCommit(self._loop, seams.executor, self._disk_failed)
        self._send_budget = SendBudget(self._loop)
        self.cluster = ClusterMember(
            self._loop,
            seams,
            self.metadata,
            self.table,
            self._group_commit,
            self._jobs,
            self._config,
            connect,
            self.role_news.tell,
        )
        self.hosting = self._hosting()
        self._hosting_loop = HostingLoop(self.hosting, self._config)
        self.services = self._services()
        self.connections = self._connections()
        self.listeners = self._listeners()
        self.upkeep = Upkeep(
            self._loop,
            self._jobs,
            seams.clock,
            self.table,
            self._group_commit,
            self._config,
            seams.files.descriptors,
            self._bring_back_offline_logs,
            self.hosting.open_missing,
        )
        self.cleaner = Cleaner(
            self._loop,
            self._jobs,
            seams.worker,
            seams.clock,
            self.table,
            self._group_commit,
            self._config,
            self.upkeep.unlink_later,
            seams.round_of,
        )
        self.disk = DiskWatch(self._jobs, self.data_dir)
        self._tasks = Tasks(self._loop, self._task_ended)
        self._may_have_written = False
        self._told_failed: set[Log] = set()  # logs that the cluster knows to be in doubt
        self.loop_lag = LoopLag(self._loop)
        self._warm_up = WarmUp(self._loop)
        self.console_port = -1  # none
        self._register()

    def _register(self) -> None:
        coordinators = (self.services.coordinator, self.services.transaction_coordinator)
        hear_of_images(self.image_news, self.cluster, coordinators, self.services.configs, self._hosting_loop)
        hear_of_roles(self.role_news, self.cluster, coordinators)
        hear_of_settings(self._config, self.cluster, self.connections, self.hosting, coordinators)

    def _hosting(self) -> Hosting:
        return Hosting(
            self.data_dir,
            self.table,
            self._group_commit,
            self.metadata.image,
            self._config,
            self._jobs,
            ArchiveProgressStore(self.metadata),
            self._config.now.node_id,
            self.cluster.roles,
        )

    def _services(self) -> Services:
        return assemble_services(
            self._loop,
            self._seams,
            self._config,
            self.metadata,
            self.data_dir,
            self.table,
            self._jobs,
            self._group_commit,
            self._send_budget,
            self.cluster,
            self.hosting,
        )

    def _connections(self) -> Connections:
        config, descriptors = self._config.now, self._seams.files.descriptors
        return Connections(
            self._loop,
            request_bytes_max=config.socket_request_max_bytes,
            receiving_bytes_max=config.queued_max_request_bytes,
            connections_max=min(config.max_connections, descriptors.connections_max),
            connections_per_ip_max=config.max_connections_per_ip,
            idle_ms_max=config.connections_max_idle_ms,
            descriptors=descriptors,
            send_budget=self._send_budget,
            awake_seconds=config.penstock_idle_poll_us / 1e6,
        )

    def _listeners(self) -> Listeners:
        services, config = self.services, self._config.now
        sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, self._seams.rng)
        hints = LeaderHints(self.metadata.image, self.table)
        self.fetches = KafkaFetches(self._loop, services.fetch, sessions, hints)
        hot = HotPath(
            self._loop,
            self.table,
            services.writer,
            self.fetches,
            services.verifier if config.penstock_transactions_enable else None,
        )
        dispatcher = KafkaDispatcher(services, hot, self.in_thread)
        accept = partial(KafkaConnection, self._loop, self.connections, dispatcher)
        has_sockets = self._seams.has_sockets
        return Listeners(self._loop, config, self.connections, accept, has_sockets=has_sockets)

    @property
    def port(self) -> int:
        """Of the first listener."""
        return self.listeners.all[0].address.port

    async def start(self) -> None:
        """Recover what is on disk, then listen: a client that gets through finds everything there."""
        data_dir, metadata, node = self.data_dir, self.metadata, self.services.node
        data_dir.open()
        await metadata.load()
        self.services.configs.refresh()
        identity = data_dir.identity(node.id, metadata.image.cluster_id)
        topics = metadata.image.stored_topics()
        strays = data_dir.quarantine_strays(
            {(t.name, i) for t in topics for i, state in enumerate(t.partitions) if node.id in state.replicas}
        )
        if strays:
            logger.warning("moved to quarantine, as no longer, or not to be kept here: %s", ", ".join(strays))
        await self.listeners.bind(self._config.now.socket_listen_backlog_size)
        node.endpoints = self.listeners.endpoints
        await self.hosting.reconcile()
        await self.cluster.membership.join(
            self._registration(identity.directory_id),
            # Files that went behind its back are no better than a crash: a replica that lacks something must not lead.
            clean=data_dir.was_clean and self.hosting.is_whole,
        )
        self._may_have_written = True
        self.hosting.look_again()  # now replicas may have roles
        await self.hosting.reconcile()
        self.loop_lag.start()
        self._tasks.start(self.cluster.run, name="cluster")
        self._tasks.start(self._hosting_loop.run, name="hosting")
        self._tasks.start(self.upkeep.run, name="upkeep")
        self._tasks.start(self.disk.run, name="disk")
        if self._config.now.log_cleaner_enable:
            self._tasks.start(self.cleaner.run, name="cleaner")
        self._tasks.start(self.services.coordinator.run, name="groups")
        self._tasks.start(self.services.group_offsets.run, name="group offsets")
        if self._config.now.penstock_transactions_enable:
            self._start_transactions()
        self._tasks.start(self.services.fetch.certainty.run, name="certainty")
        self.hosting.removal.empty_trash()
        await self.listeners.serve()
        self._warm_up.start()

    def _start_transactions(self) -> None:
        services = self.services
        self._tasks.start(services.transaction_coordinator.run, name="transactions")
        self._tasks.start(services.transactions.run, name="producer ids of transactions")
        self._tasks.start(services.marker_sender.run, name="markers")

    def _registration(self, identity: str) -> BrokerRegistration:
        node = self.services.node
        between_brokers = find_endpoint(node.endpoints, self._config.now.inter_broker_listener_name)
        assert between_brokers is not None  # or the settings were refused
        return BrokerRegistration(
            node.id,
            identity,
            between_brokers.host,
            between_brokers.port,
            node.rack,
            machine=self._config.now.penstock_host_label,
            endpoints=node.endpoints,
            partitions_max=partitions_max(self._seams.files),
            transaction_version=LEVEL if self._config.now.penstock_transactions_enable else 0,
        )

    async def abandon(self) -> None:
        """After a start that failed: returns when nothing of it is left that could touch what the next one opens.

        Where it was not registered nothing was written, so the directory is as clean as it was found; unless something
        is missing from it, which the next start will not see: the log that is there by then has its own recovery point.
        """
        await self._quiet()
        for partition in self.table.partitions():
            partition.log.close()
        with suppress(CoordinationError):
            await self.metadata.tree.close()  # or a registration whose answer was lost lives on
        is_as_found = self.data_dir.was_clean and not self._may_have_written
        self.data_dir.close(clean=is_as_found and self.hosting.is_whole)

    def _task_ended(self, name: str, error: BaseException) -> None:
        """None of them ends by itself: a broker that follows the cluster no longer must not go on."""
        self._break(f"the task {name} failed", error)

    def _listener_failed(self, name: str, error: BaseException) -> None:
        """What it did not hear of it goes on without: no better than a task that ended."""
        self._break(f"{name} failed to hear of news", error)

    def _break(self, what: str, error: BaseException) -> None:
        logger.critical("%s, so the broker stops", what, exc_info=error)
        self.broken_by = f"{what}: {error}"
        self.broken.set()

    async def _quiet(self) -> None:
        """Nobody is served, nothing runs by itself, no job works on the files."""
        self._warm_up.stop()
        self.loop_lag.stop()
        self._tasks.cancel()
        self.services.coordinator.close()
        self.services.transaction_coordinator.close()
        self.upkeep.close()
        await self.listeners.close()
        await self._tasks.close()
        await self.cluster.close()
        await self._group_commit.idle()
        await self._jobs.idle()

    async def stop(self) -> None:
        """Leave so that the next start has nothing to recover, and so that others lead before this one is gone."""
        # One that is broken may not hear of anything any more: it must not be asked as a leader a moment longer.
        if self._config.now.controlled_shutdown_enable and not self.broken.is_set():
            await self.cluster.hand_over()
        await self._quiet()
        logs = [partition.log for partition in self.table.partitions()]
        try:
            await self.hosting.save_high_watermarks()
            settle = partial(make_durable, logs, self._seams.files, self.data_dir.path)
            # Of a log that could not be opened nobody knows how its last process left it.
            complete = all_are_open(self.metadata.image, self.table, self._config.now.node_id)
            clean = await self.in_thread(settle) and complete
        except StorageError as error:
            logger.warning("the logs could not be settled, so the next start will recover them: %s", error)
            clean = False
        self.data_dir.close(clean=clean)

    # -- the disk --------------------------------------------------------------------------------------------

    def _disk_failed(self, message: str) -> None:
        logger.error("the data dir is offline after an I/O error: %s", message)
        for partition in self.table.partitions():
            partition.log.sync_failed()

    async def _bring_back_offline_logs(self) -> None:
        """As a start after a crash would: under a new leader epoch, since an unsynced tail may be gone.

        Each failure is told once. A log that stays offline is no reason to doubt the others again and again.
        """
        failed = self.hosting.failed_logs()
        if not failed <= self._told_failed and not await self.cluster.membership.begin_anew():
            return
        self._told_failed = failed
        await self.hosting.reopen_failed(failed)
        await self.hosting.reconcile()
