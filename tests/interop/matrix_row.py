"""A row of the matrix: a server, its client, and what has to be seen."""

import dataclasses

BOTH = ("weft>siw", "siw>weft")  # client>server
WEFT_CLIENT = ("weft>siw",)
WEFT_SERVER = ("siw>weft",)
SIW_SIW = ("siw>siw",)
PROBE_SERVER = "{probe} server {port} "
PROBE_CLIENT = "{probe} client {addr} {port} "


@dataclasses.dataclass(frozen=True)
class Row:
    """One meeting of a server and its client, or of several clients one after the other."""

    name: str
    group: str
    server: str
    client: str | tuple
    roles: tuple = BOTH
    siw: dict = dataclasses.field(default_factory=dict)  # module parameters, rest as by default
    crc: str = "off"  # weft run --crc=
    weft: dict = dataclasses.field(default_factory=dict)  # WEFT_* settings beside that
    client_rc: tuple = (0,)  # exit status that the last client may have
    server_rc: tuple | None = (0,)  # None: the server is ended by the test
    server_has: tuple = ()  # regular expressions, each found in the output
    client_has: tuple = ()
    weft_has: tuple = ()  # the same for whichever side is Weft
    siw_has: tuple = ()
    weft_lacks: tuple = ()
    wire: tuple = ()  # each matches a line of wire.render(); needs the tap network
    netem: str = ""  # makes the guest's side of the path slow or lossy, as tc-netem(8) says
    kill: tuple = ()  # (side, text): killed with SIGKILL once its output has the text
    # A fault of the program itself: {side of the client: regular expression of what it then says}.
    # With that it has another try.
    again_if: dict = dataclasses.field(default_factory=dict)
    tries: int = 1
    also_siw_siw: bool = False  # a few run without Weft too, to prove the guest
    timeout: int = 30  # seconds for each program
