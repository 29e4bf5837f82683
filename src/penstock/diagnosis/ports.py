"""Doctor: is a port free, and if not, who answers there?"""

import json
import socket

from penstock.core.errors import PenstockError
from penstock.diagnosis.findings import Finding, fail, ok, warn

_PATIENCE_SECONDS = 2.0
_ANSWER_BYTES_MAX = 1024 * 1024


def kafka_port(host: str, port: int) -> Finding:
    check = f"port {port}"
    taken = _taken(check, host, port)
    if taken is not None:
        return taken
    apis = kafka_apis(host, port)
    if apis is None:
        return fail(
            check,
            f"something that is no Kafka broker listens on {host}:{port}",
            "stop it, or start the broker with another --port",
        )
    return ok(check, f"a Kafka-compatible broker answers on {host}:{port} ({apis} APIs)")


def console_port(host: str, port: int) -> Finding:
    check = f"port {port}"
    taken = _taken(check, host, port)
    if taken is not None:
        return taken
    said = health(host, port)
    if said is None:
        return fail(
            check,
            f"something else listens on {host}:{port}",
            "stop it, or start the broker with another --console-port",
        )
    found = f"penstock {said.get('version')} answers on {host}:{port}, node {said.get('node')}"
    if said.get("status") == "ok":
        return ok(check, f"{found}, and is well")
    return fail(
        check, f"{found}: {said.get('status')}", "read the broker's log; a failed disk needs a restart"
    )


def _taken(check: str, host: str, port: int) -> Finding | None:
    """None when somebody listens: then it is worth asking who."""
    try:
        with socket.create_connection((host, port), _PATIENCE_SECONDS):
            return None
    except ConnectionRefusedError:
        return ok(check, f"free on {host}")
    except TimeoutError:
        return warn(check, f"{host} does not answer", "look at the firewall between here and there")
    except OSError as error:
        return fail(
            check, f"{host}: {error.strerror or error}", "name an address of this machine with --host"
        )


def kafka_apis(host: str, port: int) -> int | None:
    """How many APIs the broker there serves; None when it does not speak Kafka's protocol."""
    from penstock.wire.kafka.api_keys import ApiKey
    from penstock.wire.kafka.connection import ClientConnection
    from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest

    connection = ClientConnection("penstock-doctor", response_bytes_max=_ANSWER_BYTES_MAX)
    _, frame = connection.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    try:
        with socket.create_connection((host, port), _PATIENCE_SECONDS) as sock:
            sock.sendall(frame)
            while data := sock.recv(65536):
                for response in connection.receive(data):
                    return len(response.message().api_keys)
    except (OSError, PenstockError):
        return None
    return None


def health(host: str, port: int) -> dict[str, object] | None:
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        said = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return said if isinstance(said, dict) and "version" in said else None
