"""A Grafana dashboard and Prometheus alert rules, as text. They use only metrics of `METRICS`."""

from __future__ import annotations

from importlib.resources import files


def grafana() -> str:
    """The dashboard, as JSON: import it in Grafana, or put it where Grafana looks for them."""
    return (files("effectonce.observe") / "grafana.json").read_text(encoding="utf-8")


def alerts() -> str:
    """The rules, as YAML: name the file under `rule_files` of Prometheus."""
    return (files("effectonce.observe") / "alerts.yaml").read_text(encoding="utf-8")
