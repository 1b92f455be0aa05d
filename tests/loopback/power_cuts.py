"""What is on a disk after a power cut, as far as a program may count on it, by the record of its calls (record_calls.c).

A power cut takes what was not flushed. It need not take all of it, and it may take an earlier change and leave a later
one. So the check holds for every prefix of a record, and for every choice of what was lost:

- a name that a user sees is given by a rename, to a file that has been flushed since it was written to, and the file
  is not written to afterwards;
- what was acknowledged can be reached from the root by names that have been flushed.
"""

import os
import stat

HIDDEN = (".weft-part-", ".weft-draft-")


def number_of(info):
    return info.st_dev << 40 ^ info.st_ino


class Disk:
    """Follows a record, below the folder `root`. What is there at the beginning is on the disk."""

    def __init__(self, root):
        self.root = number_of(os.stat(root))
        self.now, self.flushed, self.files = {}, {}, set()  # (folder, name) -> number
        self.dirty = {}  # number -> where in the record it was changed last
        self.names = {}  # folder -> changes of its names that are not flushed: (where, name, number or None)
        self.begun = {}  # number -> where its flushes began
        self.acknowledged = 0
        folders = {os.path.realpath(root)}
        for folder, inner, files in os.walk(root):
            for name in inner + files:
                info = os.lstat(os.path.join(folder, name))
                self.now[number_of(os.stat(folder)), name] = number_of(info)
                if stat.S_ISREG(info.st_mode):
                    self.files.add(number_of(info))
        self.flushed = dict(self.now)
        self.folders = folders

    def set_name(self, where, folder, name, number):
        if number is None:
            self.now.pop((folder, name), None)
        else:
            self.now[folder, name] = number
        self.names.setdefault(folder, []).append((where, name, number))

    def seen(self, name):
        return not name.startswith(HIDDEN)

    def follow(self, lines):
        for where, line in enumerate(lines):
            words = line.split()
            try:
                getattr(self, "do_" + words[0])(where, *words[1:])
            except AssertionError as error:
                raise AssertionError(f"line {where + 1}, {line!r}: {error}") from None

    def do_write(self, _where, number):
        number = int(number)
        named = [name for (_, name), one in self.now.items() if one == number and number in self.files]
        assert not any(map(self.seen, named)), f"{named} is written to, and may be lost in part"
        self.dirty[number] = _where

    def do_name(self, where, folder, name, number, is_file):
        number = int(number)
        if self.now.get((int(folder), name)) == number:
            return  # opened again
        if is_file == "file":
            self.files.add(number)
            assert not self.seen(name), "a file has its name before its octets"
        self.set_name(where, int(folder), name, number)

    def do_rename(self, where, folder, name, to_folder, to_name):
        number = self.now[int(folder), name]
        if self.seen(to_name) and number in self.files:
            assert number not in self.dirty, f"{to_name} may be lost in part: it was not flushed"
        self.set_name(where, int(folder), name, None)
        self.set_name(where, int(to_folder), to_name, number)

    def do_remove(self, where, folder, name):
        self.set_name(where, int(folder), name, None)

    def do_flush(self, where, number):
        self.begun.setdefault(int(number), []).append(where)

    def do_flushed(self, _where, number):
        number = int(number)
        begun = self.begun[number].pop(0)
        if self.dirty.get(number, begun) < begun:
            del self.dirty[number]
        names = self.names.get(number, [])
        for where, name, one in names:
            if where < begun and one is None:
                self.flushed.pop((number, name), None)
            elif where < begun:
                self.flushed[number, name] = one
        self.names[number] = [one for one in names if one[0] > begun]

    def do_acknowledged(self, _where):
        self.acknowledged += 1
        todo = [self.root]
        while todo:
            folder = todo.pop()
            assert folder not in self.dirty or folder == self.root, "the permissions of a folder"
            now = {name: one for (above, name), one in self.now.items() if above == folder and self.seen(name)}
            there = {name: one for (above, name), one in self.flushed.items() if above == folder and self.seen(name)}
            assert now == there, f"names that are not flushed: {set(now.items()) ^ set(there.items())}"
            for name, one in now.items():
                assert one not in self.dirty, f"{name} is not flushed"
                todo.append(one)
