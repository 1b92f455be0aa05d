"""CRC32C for the tests in Python, written apart from the library's so that the two can disagree."""


def _table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for octet in data:
        crc = _TABLE[(crc ^ octet) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
