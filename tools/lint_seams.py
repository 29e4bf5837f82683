"""Keep real I/O, time, randomness and threads behind the seams, so that the simulation can run everything.

    python tools/lint_seams.py [ROOT]        ROOT is src/penstock by default

Names are resolved through the imports of each file (`from time import monotonic as now` does not hide).
The second rule is about order: iterating over a set gives another order in another process, and one
seed would no longer be one story.

The third is about tasks: one that nobody waits for dies in silence. A task is a child of a TaskGroup, or belongs to a
`core.tasks.Tasks`, or its maker is named in OWNED, with how its end is seen. So is it with work in threads: it is
awaited where it begins, or belongs to a `core.jobs.Jobs`.
"""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple, TypeGuard

# What each part of the tree may do, and why. A path pattern, what it is let off, the reason.
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("core/os_files.py", "files", "the file seam, as the operating system has it"),
    ("core/file_lock.py", "files", "the file seam's lock"),
    ("core/clock.py", "clock", "the clock seam itself"),
    ("core/distribution.py", "files", "asks for the package's own metadata, on the way to an error"),
    ("server/*", "files sockets threads processes random clock", "composition root: makes the real ones"),
    ("cli/*", "files sockets threads processes random clock", "runs as a user's command, never simulated"),
    (
        "diagnosis/*",
        "files sockets threads processes random clock",
        "asked by a user's command, never simulated",
    ),
    ("core/child_process.py", "files sockets threads processes random clock", "real processes"),
    (
        "coordination/zookeeper/server_process.py",
        "files sockets threads processes random clock",
        "a real ZooKeeper",
    ),
    ("client/*", "files sockets threads processes random clock", "runs in the user's process, on librdkafka"),
    ("spark/*", "files sockets threads processes random clock", "runs inside Spark, never simulated"),
    (
        "testing/*",
        "files sockets threads processes random clock tasks jobs",
        "the fakes, and fixtures with real brokers",
    ),
    ("coordination/embedded*", "sqlite", "the only store on one node; the simulation has its own"),
)

# Functions that make a task themselves, and who sees its end.
OWNED: dict[tuple[str, str], str] = {
    ("core/tasks.py", "Tasks.start"): "its owner is told",
    ("core/jobs.py", "Jobs._begin"): "the owner waits for it, `_report` says what went wrong",
    ("client/aio.py", "AsyncConsumer._call"): "`_idle` waits for it, also when the caller was cancelled",
    (
        "client/aio.py",
        "AsyncConsumer._leave",
    ): "waited for right there; cancelled, the thread closes all the same",
    (
        "coordination/embedded.py",
        "EmbeddedStore._commit",
    ): "`_written` takes its end; the next write and `close` wait",
    ("coordination/zookeeper/link.py", "Link._begin_to_close"): "whoever closes waits for it",
    ("replication/group_commit.py", "GroupCommit._start"): "`_done` tells the partition; `idle` waits",
    ("services/fetching/service.py", "FetchService.warm_then"): "its fetch goes on with what it did",
    ("services/fetching/service.py", "FetchService.in_thread"): "`done` takes what it made",
    ("coordination/zookeeper/session.py", "ZooKeeperTree.begin"): "an error ends the session",
    ("replication/fetcher.py", "Fetcher._told"): "waited for right there",
    ("server/connections.py", "Connections.run"): "`_ended` says what went wrong; answers its client itself",
    ("server/run.py", "_session"): "waited for right there",
    ("server/run.py", "_first_of"): "waited for right there",
    ("server/supervisor.py", "Supervisor.run"): "waited for at the end",
    ("server/supervisor.py", "Supervisor._keep"): "waited for right there",
    ("services/topics/service.py", "TopicService._within"): "`_finished` says what went wrong",
}

# A trailing dot means everything below that module.
BANNED: dict[str, tuple[str, ...]] = {
    "files": ("open", "io.open", "os.", "shutil.", "tempfile.", "glob.", "fcntl.", "mmap.", "linecache."),
    "sockets": ("socket.", "select.", "selectors.", "socketserver."),
    "clock": (
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.sleep",
        "time.localtime",
        "time.gmtime",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    ),
    "random": ("random.", "secrets.", "uuid.uuid1", "uuid.uuid4", "os.urandom", "os.getrandom"),
    "threads": ("threading.Thread", "threading.Timer", "_thread.", "multiprocessing."),
    "processes": ("subprocess.", "signal.", "os.fork", "os.kill", "os.system", "os.execv", "os._exit"),
    "sqlite": ("sqlite3.",),
}

HARMLESS = frozenset(
    {"random.Random", "os.fspath", "os.PathLike", "os.sep", "os.cpu_count", "signal.Signals"}
)

ADVICE = {
    "files": "go through core.files.Files",
    "sockets": "use the loop's transports",
    "clock": "durations from loop.time(), wall time from core.clock.Clock",
    "random": "take a random.Random from the constructor",
    "threads": "use loop.run_in_executor",
    "processes": "only server and cli start or signal processes",
    "sqlite": "only coordination/embedded keeps a database",
    "tasks": "use core.tasks.Tasks or a TaskGroup, or say in OWNED who sees its end",
    "jobs": "await it here, use core.jobs.Jobs, or say in OWNED who sees its end",
}

# Methods of pathlib.Path that do I/O. `Files` has some of the same names, with the path as an argument:
# the number of positional arguments tells them apart. None: whatever the arguments.
PATH_METHODS: dict[str, int | None] = {
    "read_text": None,
    "write_text": None,
    "read_bytes": None,
    "write_bytes": None,
    "iterdir": None,
    "rglob": None,
    "mkdir": None,
    "rmdir": None,
    "touch": None,
    "symlink_to": None,
    "hardlink_to": None,
    "is_file": 0,
    "is_dir": 0,
    "unlink": 0,
    "exists": 0,
    "stat": 0,
    "rename": 1,
}

_TASK_MAKERS = frozenset({"create_task", "ensure_future"})
_JOB_MAKER = "run_in_executor"
_ORDERED_COPIES = frozenset({"list", "tuple", "enumerate", "iter"})
_COMPREHENSIONS = (ast.ListComp, ast.DictComp, ast.GeneratorExp)


class Finding(NamedTuple):
    line: int
    kind: str
    message: str


def _imports(tree: ast.AST) -> dict[str, str]:
    """Local names and the dotted names they stand for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
                else:
                    top = alias.name.partition(".")[0]
                    names[top] = top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, names)
        return None if base is None else f"{base}.{node.attr}"
    return None


def _kinds(dotted: str) -> list[str]:
    """What a dotted name is banned as; the most exact entry counts."""
    if any(dotted == name or dotted.startswith(name + ".") for name in HARMLESS):
        return []
    exact, below = [], []
    for kind, banned in BANNED.items():
        for name in banned:
            if name.endswith("."):
                if dotted.startswith(name):
                    below.append(kind)
            elif dotted == name or dotted.startswith(name + "."):
                exact.append(kind)
    return exact or below


def _outer_names(tree: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Every name or dotted chain once, not again for its parts."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name | ast.Attribute):
            yield node
            while isinstance(node, ast.Attribute):
                node = node.value
            if isinstance(node, ast.Name):
                continue
        todo.extend(ast.iter_child_nodes(node))


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"set", "frozenset"}
    return isinstance(node, ast.BinOp) and (_is_set(node.left) or _is_set(node.right))


def _copies_in_order(node: ast.AST) -> TypeGuard[ast.Call]:
    """`list(…)` and the like: iteration in other words."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ORDERED_COPIES


def _set_iterations(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        iterated: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            iterated = [node.iter]
        elif isinstance(node, _COMPREHENSIONS):
            iterated = [generator.iter for generator in node.generators]
        elif _copies_in_order(node):
            iterated = node.args[:1]
        for expression in iterated:
            if _is_set(expression):
                yield Finding(
                    expression.lineno, "order", "iterates over a set: sort it, or use dict.fromkeys"
                )


def _path_calls(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            arguments = PATH_METHODS.get(node.func.attr, -1)
            if arguments is None or arguments == len(node.args):
                yield Finding(node.lineno, "files", f".{node.func.attr}(): {ADVICE['files']}")


def _task_groups(tree: ast.AST) -> set[str]:
    """The names under which the module enters TaskGroups."""
    return {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "TaskGroup" in ast.unparse(item.context_expr)
    }


def _makes(call: ast.Call, groups: set[str], awaited: set[ast.AST]) -> str:
    """Whether a call makes a task or a job whose end somebody has to see; else nothing."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    if name in _TASK_MAKERS and owner not in groups:
        return "tasks"
    return "jobs" if name == _JOB_MAKER and call not in awaited else ""


def _ownerless(tree: ast.AST, path: str) -> Iterator[Finding]:
    groups = _task_groups(tree)
    awaited: set[ast.AST] = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, place = todo.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{place}.{node.name}".lstrip(".")
        if isinstance(node, ast.Call) and (path, place) not in OWNED:
            kind = _makes(node, groups, awaited)
            if kind:
                yield Finding(node.lineno, kind, f"{ast.unparse(node.func)}: {ADVICE[kind]}")
        todo.extend((child, place) for child in ast.iter_child_nodes(node))


def check_source(source: str, path: str = "") -> list[Finding]:
    """Everything in a module that would have to be allowed; `path` is its place below the root."""
    tree = ast.parse(source)
    names = {"open": "open", **_imports(tree)}
    findings = [*_set_iterations(tree), *_path_calls(tree), *_ownerless(tree, path)]
    for node in _outer_names(tree):
        dotted = _dotted(node, names)
        if dotted is not None:
            findings += [Finding(node.lineno, kind, f"{dotted}: {ADVICE[kind]}") for kind in _kinds(dotted)]
    return sorted(set(findings))


def allowed_kinds(path: str) -> set[str]:
    return {kind for pattern, kinds, _ in ALLOWED if fnmatch(path, pattern) for kind in kinds.split()}


def check_tree(root: Path) -> list[str]:
    lines = []
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).as_posix()
        allowed = allowed_kinds(place)
        lines += [
            f"{path}:{finding.line}: {finding.message}"
            for finding in check_source(path.read_text(encoding="utf-8"), place)
            if finding.kind not in allowed
        ]
    return lines


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).parent.parent / "src" / "penstock"
    lines = check_tree(root)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
