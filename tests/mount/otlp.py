"""A collector of OpenTelemetry. It refuses the first request, and prints a line of JSON for each later one.

    otlp.py

The first line is its port. It reads requests by OpenTelemetry's own definitions.
"""

import http.server
import json
import sys

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

refusals = [503]


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = refusals.pop() if refusals else 200
        self.send_response(status)
        self.end_headers()
        if status == 200:
            print(json.dumps(shown(self.path, self.headers, body)), flush=True)
        else:
            self.wfile.write(b"not yet")

    def log_message(self, *_):
        pass


def values(attributes):
    return {pair.key: pair.value.string_value for pair in attributes}


def point(kind, point):
    """What a series shows, under its labels."""
    shown = {"labels": values(point.attributes), "span": point.time_unix_nano - point.start_time_unix_nano}
    if kind == "histogram":
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert list(point.explicit_bounds) == sorted(point.explicit_bounds)
        assert point.count == sum(point.bucket_counts)
        return shown | {"count": point.count, "sum": point.sum}
    return shown | {"value": getattr(point, point.WhichOneof("value"))}


def shown(path, headers, body):
    request = ExportMetricsServiceRequest.FromString(body)
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    metrics = {}
    for metric in of_scope.metrics:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        if kind != "gauge":
            assert data.aggregation_temporality == 2, "cumulative"
        if kind == "sum":
            assert data.is_monotonic and metric.name.endswith("_total")
        assert metric.name not in metrics and metric.description
        points = [point(kind, one) for one in data.data_points]
        metrics[metric.name] = {"kind": kind, "unit": metric.unit, "points": points}
    sent = {name.lower(): value for name, value in headers.items()}
    return {"path": path, "headers": sent, "resource": values(of_resource.resource.attributes), "metrics": metrics}


server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit()
