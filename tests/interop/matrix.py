"""What the interop tests do, as data. run.py does it; docs/interop.md shows the outcome.

A command runs through `weft run` on Weft's side, except `weft ...` itself.
Placeholders in commands: {probe} the program of probe/, {verbs} weft-selftest-verbs,
{exs_perf} and {echo} programs of libexs, {target} and {initiator} the scripts of iser/, {rddp}
rping by the calls of RFC 4296 (Weft's side only), {addr} where the client finds the server, {port},
{own} an address of the side that runs it. In patterns over
the wire: {weft} and {siw} become "client" or "server".
"""

from matrix_programs import (extended_sockets, iser, librdmacm, perftest, rddp, rping, rsockets,
                             selftest)
from matrix_protocol import crc, errors, operations, private_data, startup, teardown

GROUPS = {
    "rping": rping,
    "rddp": rddp,
    "crc": crc,
    "librdmacm": librdmacm,
    "private-data": private_data,
    "startup": startup,
    "operations": operations,
    "errors": errors,
    "teardown": teardown,
    "selftest": selftest,
    "exs": extended_sockets,
    "rsockets": rsockets,
    "iser": iser,
    "perftest": perftest,  # last: what is left out where time is short is less of the same
}


def rows(group=None):
    for name, make in GROUPS.items():
        if group in (None, name):
            yield from make()
