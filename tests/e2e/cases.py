"""Every row of the shared cases that this suite answers for.

A row is `tested` (some test carries @pytest.mark.case with its name; a run of the whole suite is
refused otherwise) or `later`, with the reason; the summary of each run prints the later ones.
"""
from typing import NamedTuple

TESTED, LATER = "tested", "later"
HTTP = "needs the HTTP inference surface"
STREAM = "needs ModelStreamInfer"
JOBS = "needs outside jobs"


class Row(NamedTuple):
    name: str
    what: str
    status: str = TESTED
    why: str = ""


ROWS = [
    # Keepalive
    Row("GW-1 a", "pings at the floor without an open stream"),
    Row("GW-1 b", "pings at the floor beside a long call"),
    Row("GW-1 c", "1,000 pings inside a second: GOAWAY too_many_pings"),
    # Over-size messages
    Row("GW-2 a", "unary message of limit + 1, all bytes sent"),
    Row("GW-2 b", "prefix 0xFFFFFFFF, ten bytes"),
    Row("GW-2 c", "second message of a stream over the limit", LATER, STREAM),
    Row("GW-2 d", "HTTP body over the limit", LATER, HTTP),
    Row("GW-2 e", "response over the server's own send limit"),
    # Compression
    Row("GW-3 a", "gzip only advertised"),
    Row("GW-3 b", "unknown encoding snappy"),
    Row("GW-3 c", "flag 1 without or with identity encoding"),
    Row("GW-3 d", "1 MiB of gzip that inflates to 1 GiB"),
    Row("GW-3 d http", "the same as an HTTP body", LATER, HTTP),
    Row("GW-3 e", "truncated and corrupt gzip"),
    Row("GW-3 f", "flag byte 7"),
    # Failed calls are well-formed replies
    Row("GW-4 a", "unknown service and unknown method"),
    Row("GW-4 b", "names with newline, quotes, non-ASCII; 8 KiB tensor name"),
    Row("GW-4 c", "content-type text/plain"),
    Row("GW-4 d", "no message at all"),
    # JSON types
    Row("TV-1", "wrong JSON types in HTTP bodies", LATER, HTTP),
    # BYTES
    Row("TV-2 good raw", "BYTES elements come back unchanged, raw"),
    Row("TV-2 good typed", "BYTES elements come back unchanged, bytes_contents"),
    Row("TV-2 bad", "lengths that do not add up"),
    Row("TV-2 json", "BYTES in JSON", LATER, HTTP),
    # Names, types and models that do not match
    Row("TV-3 output unknown", "unknown output name"),
    Row("TV-3 output twice", "the same output twice"),
    Row("TV-3 input unknown", "unknown input"),
    Row("TV-3 input missing", "missing input"),
    Row("TV-3 input twice", "the same input twice"),
    Row("TV-3 datatype", "INT64 sent for an INT32 input"),
    Row("TV-3 half typed", "FP16 and BF16 in typed contents, and raw"),
    Row("TV-3 half json", "FP16 and BF16 as JSON numbers", LATER, HTTP),
    Row("TV-3 raw and typed", "both raw and typed contents"),
    Row("TV-3 raw count", "raw count differs from the input count"),
    Row("TV-3 typed field", "typed contents in the wrong field"),
    Row("TV-3 model unknown", "unknown model"),
    Row("TV-3 version unknown", "known model, unknown version"),
    Row("TV-3 version text", "version abc"),
    Row("TV-3 loading", "model still loading"),
    Row("TV-3 http", "HTTP and gRPC agree on every row", LATER, HTTP),
    # Batching
    Row("BA-1", "no answer shows rows of another request"),
    Row("BA-2 a", "input of fixed first dimension, max batch 8"),
    Row("BA-2 b load", "output of fixed first dimension, visible at load"),
    Row("BA-2 b run", "fewer output rows than the batch, seen by running"),
    Row("BA-2 c", "9 rows when the maximum is 8"),
    Row("BA-2 d", "one batching and one non-batching input"),
    Row("BA-3 a", "a lone request starts when its delay is over"),
    Row("BA-3 b", "5 and 4 rows are not split"),
    Row("BA-3 c", "a full batch starts at once"),
    Row("BA-3 d", "200 at once: all batches at most 8, most of them full"),
    Row("BA-3 e", "delay 0 never waits"),
    Row("BA-4 grpc", "full queue by gRPC: fast, documented code, counted"),
    Row("BA-4 bytes", "the bound counts bytes too"),
    Row("BA-4 http", "full queue by HTTP", LATER, HTTP),
    # Work whose client is gone
    Row("DC-1 a", "deadline passes in the queue"),
    Row("DC-1 b", "RST_STREAM(CANCEL) in the queue"),
    Row("DC-1 c", "TCP connection closed"),
    Row("DC-1 d", "HTTP client closes or half-closes", LATER, HTTP),
    Row("DC-2 legal", "legal grpc-timeout values in their units"),
    Row("DC-2 malformed", "malformed grpc-timeout values share one outcome"),
    Row("DC-2 two headers", "grpc-timeout twice"),
    Row("DC-2 parameter", "the request's timeout parameter and the header: the earlier"),
]
