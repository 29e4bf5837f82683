"""The services of one broker, put together: which parts each of them is given."""

import asyncio
from functools import partial

from penstock.config.live import LiveConfig
from penstock.coordination.catching_up import catch_up
from penstock.coordination.metadata import MetadataStore
from penstock.core.jobs import Jobs
from penstock.replication.group_commit import GroupCommit
from penstock.replication.table import PartitionTable
from penstock.server.cluster import ClusterMember
from penstock.server.seams import Seams
from penstock.server.sending import SendBudget
from penstock.services.batch_opening import Openings
from penstock.services.configs import ConfigService
from penstock.services.coordinator.group_admin import GroupAdminService
from penstock.services.coordinator.group_kind import GroupKind
from penstock.services.coordinator.group_offsets import GroupOffsetService
from penstock.services.coordinator.memberships import MembershipService
from penstock.services.coordinator.runtime import CoordinatorRuntime
from penstock.services.coordinator.transactional_offsets import TransactionalOffsetService
from penstock.services.delete_records import DeletionService
from penstock.services.fetching.certainty import Certainty
from penstock.services.fetching.replica_selector import selector
from penstock.services.fetching.service import FetchService
from penstock.services.hosting.hosting import Hosting
from penstock.services.list_offsets import OffsetService
from penstock.services.maintenance.disk_usage import DiskUsage
from penstock.services.producer_ids import ProducerIds
from penstock.services.reassignments import Reassignments
from penstock.services.refusals import Refusals
from penstock.services.services import Node, Services
from penstock.services.topics.headroom import Headroom
from penstock.services.topics.service import TopicService
from penstock.services.transactions.filled_ids import FilledIds
from penstock.services.transactions.hanging import HangingTransactions
from penstock.services.transactions.kind import TransactionKind
from penstock.services.transactions.marker_sender import DueMarkers, MarkerSender
from penstock.services.transactions.marker_writer import LeaderMarkerWriter
from penstock.services.transactions.service import TransactionService
from penstock.services.transactions.verifier import CoordinatorVerifier
from penstock.services.writer import Writer
from penstock.storage.data_dir import DataDir


def assemble_services(
    loop: asyncio.AbstractEventLoop,
    seams: Seams,
    config: LiveConfig,
    metadata: MetadataStore,
    data_dir: DataDir,
    table: PartitionTable,
    jobs: Jobs,
    group_commit: GroupCommit,
    send_budget: SendBudget,
    cluster: ClusterMember,
    hosting: Hosting,
) -> Services:
    node, image = config.now.node_id, metadata.image
    openings = Openings(loop, seams.executor)
    headroom = Headroom(jobs, data_dir, table, node, image, cluster.others.ask_disk)
    topics = TopicService(metadata, hosting.reconcile, node, cluster.controller_client, headroom.check)
    writer = Writer(seams.clock, openings)
    shared = (loop, seams.executor, seams.clock, seams.rng, table, writer, topics, image)
    caught_up = partial(catch_up, metadata)
    coordinator = CoordinatorRuntime(GroupKind(), *shared, caught_up, config)
    producer_ids, due_markers = ProducerIds(metadata), DueMarkers()
    spare_ids = FilledIds(producer_ids)
    transaction_kind = TransactionKind(spare_ids, due_markers)
    transaction_coordinator = CoordinatorRuntime(transaction_kind, *shared, caught_up, config)
    transactions = TransactionService(transaction_coordinator, transaction_kind, spare_ids, image)
    ask = cluster.ask_peer
    verifier = CoordinatorVerifier(node, image, transactions, ask)
    marker_writer = LeaderMarkerWriter(seams.clock, table, writer, coordinator)
    group_offsets = GroupOffsetService(coordinator)
    return Services(
        node=Node(node, config.now.broker_rack),
        config=config,
        clock=seams.clock,
        image=image,
        table=table,
        writer=writer,
        fetch=_fetch_service(loop, seams, config, metadata, table, send_budget, cluster),
        topics=topics,
        offsets=OffsetService(openings, table),
        producer_ids=producer_ids,
        configs=ConfigService(config, metadata, hosting, table, cluster.others.ask_readable_ends),
        deletions=DeletionService(loop, jobs, seams.clock, table, group_commit),
        disk_usage=DiskUsage(loop, seams.executor, data_dir, table),
        coordinator=coordinator,
        memberships=MembershipService(coordinator),
        group_offsets=group_offsets,
        transactional_offsets=TransactionalOffsetService(coordinator, group_offsets.room, verifier),
        group_admin=GroupAdminService(coordinator),
        transaction_coordinator=transaction_coordinator,
        transactions=transactions,
        verifier=verifier,
        marker_writer=marker_writer,
        hanging=HangingTransactions(node, image, caught_up, table, transactions, ask, marker_writer),
        marker_sender=MarkerSender(
            node, image, due_markers, transaction_coordinator.shard_of, marker_writer, ask, caught_up
        ),
        controller=cluster.controller,
        controller_client=cluster.controller_client,
        reassignments=Reassignments(cluster.controller, metadata),
        retiring=cluster.retiring,
        relays=cluster.relays,
        authenticator=cluster.authenticator,
        refusals=Refusals(),
    )


def _fetch_service(
    loop: asyncio.AbstractEventLoop,
    seams: Seams,
    config: LiveConfig,
    metadata: MetadataStore,
    table: PartitionTable,
    send_budget: SendBudget,
    cluster: ClusterMember,
) -> FetchService:
    now, image = config.now, metadata.image
    return FetchService(
        loop,
        seams.executor,
        table,
        now.fetch_max_bytes,
        seams.files.descriptors,
        send_budget,
        cluster.follower_reads,
        Certainty(now.node_id, image, partial(catch_up, metadata)),
        selector(now.replica_selector_class, now.node_id, image),
    )
