"""An S3-compatible server over a folder, and what Spark needs to speak to it."""

from __future__ import annotations

from pathlib import Path

from tools.peers import http, maven
from tools.peers.process import HOST, PeerProcess, free_ports

SERVER_POM = Path(__file__).with_name("s3-pom.xml")
CLIENT_POM = Path(__file__).with_name("s3a-pom.xml")
IDENTITY, SECRET = "penstock", "not-a-secret"
HEAP = "-Xmx256m"


def client_jars() -> list[Path]:
    """For `spark.jars`: what `spark.jars.packages=org.apache.hadoop:hadoop-aws:…` brings."""
    version = maven.pinned(CLIENT_POM, "hadoop.version")
    return sorted(maven.jars(CLIENT_POM, f"s3a-{version}").glob("*.jar"))


class S3(PeerProcess):
    """`with S3() as s3: s3.spark_settings()`; buckets are folders."""

    name = "s3"

    def __init__(self, work_dir: Path | None = None) -> None:
        super().__init__(work_dir)
        self.port = free_ports(1)[0]

    def prepare(self) -> None:
        self.data_dir.mkdir()
        settings = {
            "s3proxy.endpoint": f"http://{HOST}:{self.port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": IDENTITY,
            "s3proxy.credential": SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self.data_dir,
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    @property
    def _config(self) -> Path:
        return self.work_dir / "s3proxy.conf"

    def command(self) -> list[str]:
        version = maven.pinned(SERVER_POM, "s3proxy.version")
        (jar,) = maven.jars(SERVER_POM, f"s3proxy-{version}").glob("*.jar")
        return [maven.java(), HEAP, "-jar", str(jar), "--properties", str(self._config)]

    def is_ready(self) -> bool:
        return http.answers(self.port)

    def make_bucket(self, name: str) -> str:
        (self.data_dir / name).mkdir()
        return f"s3a://{name}"

    def files(self, bucket: str) -> list[str]:
        """Every object, by its key."""
        top = self.data_dir / bucket
        return sorted(str(file.relative_to(top)) for file in top.rglob("*") if file.is_file())

    def spark_settings(self) -> dict[str, str]:
        return {
            "spark.jars": ",".join(str(jar) for jar in client_jars()),
            "spark.hadoop.fs.s3a.endpoint": f"http://{HOST}:{self.port}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": IDENTITY,
            "spark.hadoop.fs.s3a.secret.key": SECRET,
        }
