"""Exposition of metrics with istiod's names and Go's number format."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pilot.lib.build_info import BuildInfo
from pilot.lib.metrics.exposition import format_float
from pilot.lib.metrics.metric_catalogue import CATALOGUE
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME

CDS = BY_SHORT_NAME["cds"]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(BuildInfo("1.2.3", "abc", "Clean"), now=iter(range(100, 1000, 7)).__next__)


def lines(metrics: Metrics, prefix: str = "") -> list[str]:
    return [line for line in metrics.exposition().decode().splitlines() if line.startswith(prefix)]


def test_float_format() -> None:
    expected = {
        0: "0",
        1: "1",
        90: "90",
        0.01: "0.01",
        2.5: "2.5",
        1e-5: "1e-05",
        999999: "999999",
        1e6: "1e+06",
        4e7: "4e+07",
        -3: "-3",
        1234567: "1.234567e+06",
        1e21: "1e+21",
        1.7e-9: "1.7e-09",
        float("inf"): "+Inf",
        float("-inf"): "-Inf",
        float("nan"): "NaN",
    }
    assert {value: format_float(value) for value in expected} == expected


def test_build_and_uptime_metrics(metrics: Metrics) -> None:
    assert lines(metrics, "pilot_info") == ['pilot_info{version="1.2.3-abc-Clean"} 1']
    assert lines(metrics, "istio_build") == ['istio_build{component="pilot",tag="1.2.3"} 1']
    assert lines(metrics, "istiod_uptime_seconds") == ["istiod_uptime_seconds 21"]


def test_series_appears_with_its_first_observation(metrics: Metrics) -> None:
    assert not lines(metrics, "pilot_xds")
    assert not lines(metrics, "# TYPE pilot_xds")
    metrics.internal_error()
    assert lines(metrics, "pilot_total") == ["pilot_total_xds_internal_errors 1"]


def test_counter_and_histogram_exposition(metrics: Metrics) -> None:
    metrics.sent(CDS, 20_000, 0.2, 0.05)
    metrics.sent(CDS, 2_000_000, 0.02, 0.005)
    metrics.send_failed(CDS)
    assert lines(metrics, "pilot_xds_pushes") == [
        'pilot_xds_pushes{type="cds"} 2',
        'pilot_xds_pushes{type="cds_senderr"} 1',
    ]
    assert "# TYPE pilot_xds_pushes counter" in lines(metrics)
    assert not [line for line in lines(metrics) if "_created" in line]


def test_histograms(metrics: Metrics) -> None:
    metrics.sent(CDS, 20_000, 0.2, 0.05)
    metrics.sent(CDS, 2_000_000, 0.02, 0.005)
    assert lines(metrics, "pilot_xds_config_size_bytes") == [
        *(
            f'pilot_xds_config_size_bytes_bucket{{type="{CDS}",le="{bound}"}} {count}'
            for bound, count in (("1", 0), ("10000", 0), ("1e+06", 1))
        ),
        *(
            f'pilot_xds_config_size_bytes_bucket{{type="{CDS}",le="{bound}"}} 2'
            for bound in ("4e+06", "1e+07", "4e+07", "+Inf")
        ),
        f'pilot_xds_config_size_bytes_sum{{type="{CDS}"}} 2.02e+06',
        f'pilot_xds_config_size_bytes_count{{type="{CDS}"}} 2',
    ]
    assert [line.partition("le=")[2] for line in lines(metrics, "pilot_xds_send_time_bucket")][:3] == [
        '"0.01"} 1',
        '"0.1"} 2',
        '"1"} 2',
    ]


def test_connected_proxies_stay_at_zero(metrics: Metrics) -> None:
    metrics.connected("1.30.0")
    metrics.connected("1.30.0")
    metrics.connected("")
    metrics.disconnected("1.30.0")
    assert lines(metrics, "pilot_xds{") == ['pilot_xds{version=""} 1', 'pilot_xds{version="1.30.0"} 1']
    metrics.disconnected("1.30.0")
    assert 'pilot_xds{version="1.30.0"} 0' in lines(metrics)


def test_rejections(metrics: Metrics) -> None:
    metrics.rejected(BY_SHORT_NAME["lds"], "a.default", 13)
    metrics.rejected(BY_SHORT_NAME["lds"], "a.default", 13)
    metrics.rejected(BY_SHORT_NAME["nds"], "a.default", 3)
    metrics.rejected("type.googleapis.com/x.Unknown", 'odd"\n\\', 99)
    assert lines(metrics, "pilot_xds_") == ['pilot_xds_lds_reject{err="Internal",node="a.default"} 1']
    assert 'pilot_total_xds_rejects{type="lds"} 2' in lines(metrics)
    assert 'pilot_total_xds_rejects{type="type.googleapis.com/x.Unknown"} 1' in lines(metrics)


def test_labels_are_escaped_and_sorted(metrics: Metrics) -> None:
    metrics.rejected_config("gateway", 'ns/a"b\\c\nd')
    metrics.config_event("VirtualService", "add", 3)
    assert lines(metrics, "pilot_total_rejected") == [
        r'pilot_total_rejected_configs{name="ns/a\"b\\c\nd",type="gateway"} 1'
    ]
    assert lines(metrics, "pilot_k8s_cfg") == ['pilot_k8s_cfg_events{event="add",type="VirtualService"} 3']


def test_other_observations(metrics: Metrics) -> None:
    metrics.received(500)
    metrics.received(200)
    metrics.dequeued(0.05, {"config": 2, "endpoint": 1})
    metrics.converged(0.7)
    metrics.updated("eds")
    metrics.debounced(0.1)
    metrics.committed(0.02)
    metrics.counted(12, 5)
    metrics.registry_event("Services", "update")
    metrics.expired_nonce(CDS)
    metrics.write_timed_out()
    metrics.derivation_failed("outbound_cluster")
    exposed = lines(metrics)
    for line in (
        "pilot_xds_recv_max 500",
        'pilot_push_triggers{type="config"} 2',
        'pilot_push_triggers{type="endpoint"} 1',
        "pilot_proxy_queue_time_count 1",
        'pilot_proxy_convergence_time_bucket{le="0.5"} 0',
        'pilot_proxy_convergence_time_bucket{le="1"} 1',
        'pilot_inbound_updates{type="eds"} 1',
        "pilot_debounce_time_sum 0.1",
        "pilot_pushcontext_init_seconds_count 1",
        "pilot_services 12",
        "pilot_virt_services 5",
        'pilot_k8s_reg_events{event="update",type="Services"} 1',
        'pilot_xds_expired_nonce{type="cds"} 1',
        "pilot_xds_write_timeout 1",
        'pilot_derivation_failures{derivation="outbound_cluster"} 1',
    ):
        assert line in exposed


def test_exposition_is_valid_and_has_process_metrics(metrics: Metrics) -> None:
    metrics.sent(CDS, 20_000, 0.2, 0.05)
    families = {family.name for family in text_string_to_metric_families(metrics.exposition().decode())}
    assert {
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "process_open_fds",
        "python_info",
        "pilot_xds_send_time",
    } <= families


def test_catalogue_is_consistent() -> None:
    for metric in CATALOGUE.values():
        assert list(metric.labels) == sorted(metric.labels), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric.name


@pytest.mark.slow
def test_client_values_create_a_bounded_number_of_series(metrics: Metrics) -> None:
    for number in range(1000):
        metrics.connected(f"version {number}")
        metrics.sent(f"type.googleapis.com/invented.{number}", 1, 1, 1)
        metrics.expired_nonce(f"type.googleapis.com/invented.{number}")
        metrics.rejected(CDS, f"proxy {number}", number)
    for name, metric in CATALOGUE.items():
        series = {
            line.rpartition(" ")[0].partition(',le="')[0]
            for line in lines(metrics)
            if line.partition("{")[0] in (name, f"{name}_count")
        }
        assert len(series) <= metric.limit + 1, name
    versions = lines(metrics, "pilot_xds{")
    assert len(versions) == 101
    assert versions[0] == 'pilot_xds{version="other"} 900'


def test_folded_series_are_decremented(metrics: Metrics) -> None:
    for number in range(200):
        metrics.connected(str(number))
    for number in range(200):
        metrics.disconnected(str(number))
    assert {line.rpartition(" ")[2] for line in lines(metrics, "pilot_xds{")} == {"0"}


def test_long_labels_are_cut(metrics: Metrics) -> None:
    metrics.connected("x" * 1_000_000)
    metrics.connected("x" * 1_000_001)
    assert lines(metrics, "pilot_xds{") == [f'pilot_xds{{version="{"x" * 200}"}} 2']


def test_only_foreign_labels_are_folded_beyond_the_limit(metrics: Metrics) -> None:
    limit = CATALOGUE["pilot_total_rejected_configs"].limit
    for number in range(limit):
        metrics.rejected_config("gateway", f"shop/{number}")
    for kind in ("gateway", "sidecar", "sidecar"):
        metrics.rejected_config(kind, "shop/one-more")
    series = lines(metrics, "pilot_total_rejected_configs{")
    assert len(series) == limit + 2
    assert 'pilot_total_rejected_configs{name="other",type="gateway"} 1' in series
    assert 'pilot_total_rejected_configs{name="other",type="sidecar"} 2' in series


def test_internal_labels_are_never_folded(metrics: Metrics) -> None:
    for number in range(1200):
        metrics.derivation_failed(f"derivation_{number}")
    assert len(lines(metrics, "pilot_derivation_failures{")) == 1200


def test_queue_metrics_are_opt_in(metrics: Metrics) -> None:
    metrics.dequeued(0.2, {})
    assert not lines(metrics, "pilot_worker_queue")
    metrics.count_queues({"pushes": lambda: 7})
    metrics.dequeued(0.2, {})
    metrics.converged(2)
    assert lines(metrics, "pilot_worker_queue_depth") == ['pilot_worker_queue_depth{queueID="pushes"} 7']
    assert 'pilot_worker_queue_latency_sum{queueID="pushes"} 0.2' in lines(metrics)
    assert 'pilot_worker_queue_duration_bucket{queueID="pushes",le="3"} 1' in lines(metrics)


def test_cache_metrics_are_read_at_exposition(metrics: Metrics) -> None:
    reads = (3, 0)
    metrics.count_cache(lambda: 5, lambda: 9, lambda: reads)
    assert lines(metrics, "xds_cache_reads") == ['xds_cache_reads{type="hit"} 3']
    reads = (4, 2)
    assert lines(metrics, "xds_cache_reads") == ['xds_cache_reads{type="hit"} 4', 'xds_cache_reads{type="miss"} 2']
    assert lines(metrics, "xds_cache_size") == ["xds_cache_size 5"]
    assert lines(metrics, "xds_cache_dependent") == ["xds_cache_dependent_config_size 9"]


def test_response_metrics(metrics: Metrics) -> None:
    metrics.sent(CDS, 500, 0.25, 0.125)
    metrics.sent(CDS, 20_000, 2, 1)
    assert (metrics.responses, metrics.response_bytes) == (2, 20_500)
    assert lines(metrics, "pilot_xds_pushes{") == ['pilot_xds_pushes{type="cds"} 2']
    expected = {
        'pilot_xds_push_time_sum{type="cds"} 2.25',
        'pilot_xds_push_time_bucket{type="cds",le="0.5"} 1',
        f'pilot_xds_config_size_bytes_sum{{type="{CDS}"}} 20500',
        f'pilot_xds_config_size_bytes_bucket{{type="{CDS}",le="10000"}} 1',
        "pilot_xds_send_time_sum 1.125",
        'pilot_xds_send_time_bucket{le="1"} 2',
    }
    assert expected - set(lines(metrics)) == set()


def test_last_series_below_the_limit_is_not_folded(metrics: Metrics) -> None:
    for number in range(CATALOGUE["pilot_xds"].limit):
        metrics.connected(f"v{number}")
    metrics.connected("v1")
    assert len(lines(metrics, "pilot_xds{")) == 100
    assert 'pilot_xds{version="v1"} 2' in lines(metrics)
    metrics.connected("one more")
    assert lines(metrics, "pilot_xds{")[0] == 'pilot_xds{version="other"} 1'


def test_cluster_and_health_gauges(metrics: Metrics) -> None:
    for local, remote in ((1, 3), (1, 2)):
        metrics.clusters(local, remote)
    metrics.health("pilot_no_ip", 4)
    metrics.health("pilot_no_ip", 2)
    assert lines(metrics, "istiod_managed_clusters") == [
        'istiod_managed_clusters{cluster_type="local"} 1',
        'istiod_managed_clusters{cluster_type="remote"} 2',
    ]
    assert lines(metrics, "pilot_no_ip") == ["pilot_no_ip 2"]


@pytest.mark.parametrize("name", ["go_goroutines", "go_memstats_sys_bytes", "process_cpu_seconds_total"])
def test_process_metrics(metrics: Metrics, name: str) -> None:
    (line,) = lines(metrics, f"{name} ")
    assert float(line.split()[1]) > 0
