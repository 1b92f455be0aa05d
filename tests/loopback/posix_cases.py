"""What POSIX programs may ask of a file system, case by case, after the list of pjdfstest.

A line is a case: a name, and steps as posix_calls.py knows them. `=` names the result, `?` any; without it the step
succeeds. `there` in front of a step: not through the mount. `other` in front: as another user, who is none of ours. `{a|b}` stands for several
cases. `{type}` stands for each type of file, `{node}` for each but folders.
"""

import itertools
import re

TYPES = ("regular", "folder", "fifo", "block", "char", "socket", "symlink")
SHORT = {"{type}": "{" + "|".join(TYPES) + "}", "{node}": "{" + "|".join(t for t in TYPES if t != "folder") + "}",
         "{name255}": "n" * 255, "{name256}": "n" * 256, "{path4095}": "./" * 2047 + "f", "{path4096}": "./" * 2047 + "ff"}

# Of each call that takes a name: {} is that name.
CALLS = """
chmod         | chmod {} 600
chown         | chown {} 0 0
lchown        | lchown {} 0 0
link from     | link {} new
link to       | there put old text ; link old {}
mkdir         | mkdir {}
mkfifo        | mkfifo {}
mknod         | mknod {}
open          | open {} RDONLY
open to write | open {} WRONLY,TRUNC
open new      | open {} CREAT,WRONLY 644
rename from   | rename {} new
rename to     | there put old text ; rename old {}
rmdir         | rmdir {}
symlink       | symlink nowhere {}
truncate      | truncate {} 10
unlink        | unlink {}
utimens       | utimens {} 10 20
access        | access {} 0
readlink      | readlink {}
readdir       | readdir {}
stat          | stat {}
"""
# What is wrong with the name.
WRONG = """
a file is no folder             | there put f text                             | f/x         | ENOTDIR
a folder is not there           |                                              | none/x      | ENOENT
no name at all                  |                                              | EMPTY       | ENOENT
a component is too long         |                                              | {name256}   | ENAMETOOLONG
a folder's name is too long     |                                              | {name256}/x | ENAMETOOLONG
a path is too long              |                                              | {path4096}  | ENAMETOOLONG
a link leads to itself          | there symlink loop loop                      | loop/x      | ELOOP
two links lead to each other    | there symlink b a ; there symlink a b        | a/x         | ELOOP
a bad address                   |                                              | BAD         | EFAULT
"""
# ... for a user who may not search the folder.
SHUT = """
chmod        | other chmod shut/f 600
chown        | other chown shut/f 65534 65534
link from    | other link shut/f open/new
link to      | other link open/f shut/new
mkdir        | other mkdir shut/new
mkfifo       | other mkfifo shut/new
mknod        | other mknod shut/new
open         | other open shut/f RDONLY
open new     | other open shut/new CREAT,WRONLY 644
rename from  | other rename shut/f open/new
rename to    | other rename open/f shut/new
rmdir        | other rmdir shut/d
symlink      | other symlink nowhere shut/new
truncate     | other truncate shut/f 1
unlink       | other unlink shut/f
utimens      | other utimens shut/f 10 20
stat         | other stat shut/f
"""

CASES = """
chmod: each type, and back          | there make {regular|folder|fifo|block|char|socket} n ; chmod n 111 ; chmod n 751
chmod: a mode without rights        | there put f text ; chmod f 0 ; lstat f mode = 0000
chmod: through a link               | there put f text ; there symlink f l ; chmod l 600 ; lstat f mode = 0600
chmod: to nowhere                   | there symlink nowhere l ; chmod l 600 = ENOENT
chmod: the link is its own target   | there symlink l l ; chmod l 600 = ELOOP
chmod: the time of change           | there make {regular|folder|fifo|socket} n ; mark n ; chmod n 111 ; changed n = c
chmod: an error changes no time     | there put f text ; mark f ; other chmod f 111 = EPERM ; changed f = EMPTY
chmod: not the owner                | there make {regular|folder|fifo} n ; other chmod n 777 = EPERM
chmod: by a descriptor              | there put f text ; open f RDONLY 0 a ; fchmod a 611 ; fstat a mode = 0611 ; lstat f mode = 0611
chmod: of a removed file            | open f CREAT,RDWR 644 a ; unlink f ; fchmod a 600 ; fstat a mode = 0600
chmod: the sticky bit of a folder   | mkdir d ; chmod d 1777 ; lstat d mode = 1777
chmod: set-id bits                  | there put f text ; chmod f {4755|2755|6755|7777}
chown: to ourselves                 | there make {type} n ; lchown n 0 0 ; lchown n -1 -1 ; lchown n 0 -1 ; lchown n -1 0
chown: through a link               | there put f text ; there symlink f l ; chown l 0 0
chown: to nowhere                   | there symlink nowhere l ; chown l 0 0 = ENOENT ; lchown l 0 0
chown: to somebody else             | there put f text ; chown f 65534 65534
chown: a group                      | there put f text ; chown f -1 65534
chown: not the owner                | there make {regular|folder|fifo} n ; other chown n 65534 65534 = EPERM
chown: the link is its own target   | there symlink l l ; chown l 0 0 = ELOOP
link: each type                     | there make {node} n ; link n m ; lstat m links = 2 ; lstat n links = 2
link: what is written is there      | there put f text ; link f g ; open g WRONLY 0 a ; write a more = 4 ; read f = more
link: a folder                      | mkdir d ; link d e = EPERM
link: to a name that is there       | there put f text ; there make {type} n ; link f n = EEXIST
link: nothing                       | link f g = ENOENT
mkdir: its mode and the mask        | umask {0|22|77|277} ; mkdir d 777
mkdir: a mode                       | umask 0 ; mkdir d {755|151|700|0|1777}
mkdir: the times of its folder      | mkdir d ; mark d ; mkdir d/e ; changed d = mc
mkdir: a name that is there         | there make {type} n ; mkdir n = EEXIST
mkdir: a slash at the end           | mkdir d/ ; lstat d type = 4
mkdir: itself, its parent           | mkdir d ; mkdir d/. = EEXIST ; mkdir d/.. = EEXIST ; mkdir . = EEXIST
mkdir: the longest name             | mkdir {name255} ; rmdir {name255}
mkdir: no right to write            | mkdir d ; other mkdir d/e = EACCES
mkfifo: its mode                    | umask {0|22|77} ; mkfifo p 666 ; lstat p mode,type
mkfifo: a name that is there        | there make {type} n ; mkfifo n = EEXIST
mkfifo: no right to write           | mkdir d ; other mkfifo d/p = EACCES
mkfifo: the longest name            | mkfifo {name255}
mknod: a regular file               | umask {0|22|77} ; mknod f regular 666 ; lstat f type,size = 8 0
mknod: a name that is there         | there make {type} n ; mknod n = EEXIST
mknod: a device, not as root        | chmod . 777 ; other mknod n {char|block} = EPERM
mknod: a pipe                       | mknod p fifo
mknod: a device                     | mknod n {char|block}
open: a new file's mode             | umask {0|22|77|477} ; open f CREAT,WRONLY 777
open: a mode                        | umask 0 ; open f CREAT,WRONLY {644|151|0|600} a ; write a text = 4
open: set-id bits at once           | umask 0 ; open f CREAT,WRONLY {4755|2755|1755}
open: without rights, still written | open f CREAT,EXCL,RDWR 0 a ; write a text = 4 ; pread a 10 0 = text
open: new, the folder's times       | mkdir d ; mark d ; open d/f CREAT,WRONLY 644 ; changed d = mc
open: not new, no times             | mkdir d ; put d/f text ; mark d ; mark d/f ; open d/f CREAT,RDONLY 644 ; changed d = EMPTY ; changed d/f = EMPTY
open: truncated, its times          | there put f text ; mark f ; open f WRONLY,TRUNC ; changed f = mc ; lstat f size = 0
open: exclusive                     | there make {type} n ; open n CREAT,EXCL,WRONLY 644 = EEXIST
open: exclusive, new                | open f CREAT,EXCL,WRONLY 644 ; lstat f size,type = 0 8
open: a link to nowhere             | symlink f l ; open l CREAT,WRONLY 644 a ; write a text = 4 ; read f = text
open: a link to nowhere, exclusive  | symlink f l ; open l CREAT,EXCL,WRONLY 644 = EEXIST ; lstat f = ENOENT
open: a link with O_NOFOLLOW        | there put f text ; symlink f l ; open l RDONLY,NOFOLLOW = ELOOP
open: a link to itself              | symlink l l ; open l RDONLY = ELOOP ; open l CREAT,WRONLY 644 = ELOOP
open: a folder to write             | mkdir d ; open d {WRONLY|RDWR|RDONLY,TRUNC|WRONLY,TRUNC} = EISDIR
open: a folder to make              | mkdir d ; open d CREAT,RDONLY 644 = EISDIR
open: a file as a folder            | there put f text ; open f RDONLY,DIRECTORY = ENOTDIR ; open f/ RDONLY = ENOTDIR
open: a slash behind a new file     | open f/ CREAT,WRONLY 644 = EISDIR
open: a pipe that nobody reads      | there make fifo p ; open p WRONLY,NONBLOCK = ENXIO ; open p RDONLY,NONBLOCK
open: a socket                      | there make socket s ; open s {RDONLY|WRONLY} = ENXIO
open: a device                      | there make char n ; open n RDONLY
open: what others may read          | there put f text ; chmod f {4|6} ; other open f RDONLY
open: what others may not read      | there put f text ; chmod f {0|1|2} ; other open f RDONLY = EACCES
open: what others may not write     | there put f text ; chmod f {0|1|4} ; other open f {WRONLY|RDWR|RDONLY,TRUNC} = EACCES
open: others write                  | there put f text ; chmod f 606 ; other open f WRONLY,TRUNC 0 a ; write a it = 2 ; read f
open: new in another's folder       | mkdir d ; other open d/f CREAT,WRONLY 644 = EACCES
open: the owner has no right        | there put f text ; chmod f 0 ; open f RDONLY = EACCES ; open f WRONLY = EACCES
open: a folder without search       | mkdir d ; there put d/f text ; chmod d 0 ; open d/f RDONLY = EACCES ; chmod d 755
open: the longest name and path     | open {name255} CREAT,WRONLY 644 ; open {path4095} CREAT,WRONLY 644
open: to append                     | there put f text ; open f WRONLY,APPEND 0 a ; write a more = 4 ; read f = textmore
open: by two who append             | open f CREAT,WRONLY,APPEND 644 a ; open f WRONLY,APPEND 0 b ; write a one = 3 ; write b two = 3 ; write a three = 5 ; read f = onetwothree
open: an unnamed file               | open . TMPFILE,RDWR 600 = ?
read: to write only                 | open f CREAT,WRONLY 644 a ; pread a 4 0 = EBADF
write: to read only                 | there put f text ; open f RDONLY 0 a ; write a more = EBADF
write: from a bad address           | open f CREAT,WRONLY 644 a ; write_bad a = EFAULT ; lstat f size = 0
write: behind all files             | open f CREAT,RDWR 644 a ; pwrite a x 9223372036854775000 = EFBIG ; pread a 4 9223372036854775000 = EMPTY ; lstat f size = 0
write: its times                    | open f CREAT,WRONLY 644 a ; mark f ; write a text = 4 ; changed f = mc
write: set-id bits go               | there put f text ; there chmod f 6777 ; other open f WRONLY 0 a ; other write a more = 4 ; lstat f mode
fallocate: room behind the end      | open f CREAT,RDWR 644 a ; write a text = 4 ; fallocate a 0 5000 ; lstat f size = 5000 ; pread a 4 0 = text
fallocate: not to write             | there put f text ; open f RDONLY 0 a ; fallocate a 0 10 = EBADF
rename: each type                   | there make {type} n ; rename n m ; lstat n = ENOENT
rename: over a file of each type    | there make {node} m ; there put f text ; rename f m ; lstat f = ENOENT ; read m = text
rename: each type over a file       | there make {node} n ; there put f text ; rename n f
rename: a folder over an empty one  | mkdir d ; there put d/f text ; mkdir e ; rename d e ; read e/f = text
rename: a folder over a full one    | mkdir d ; mkdir e ; there make {type} e/n ; rename d e = ENOTEMPTY
rename: a folder over a file        | mkdir d ; there make {node} n ; rename d n = ENOTDIR
rename: a file over a folder        | mkdir d ; there make {node} n ; rename n d = EISDIR
rename: into itself                 | mkdir d ; rename d d/e = EINVAL ; mkdir d/e ; rename d d/e/f = EINVAL
rename: to itself                   | there put f text ; rename f f ; read f = text ; mkdir d ; rename d d
rename: . and ..                    | mkdir d ; rename d/. e = EBUSY ; rename d/.. e = EBUSY ; rename d d/.. = EBUSY
rename: nothing                     | rename f g = ENOENT ; rename f f = ENOENT
rename: between folders             | mkdir d ; mkdir e ; put d/f text ; mark d ; mark e ; rename d/f e/g ; changed d = mc ; changed e = mc ; read e/g = text
rename: a folder between folders    | mkdir d ; mkdir e ; mkdir d/f ; there put d/f/g text ; rename d/f e/f ; read e/f/g = text ; same e/f/.. e = True
rename: over one that is open       | there put f old ; open f RDONLY 0 a ; there put g new ; rename g f ; pread a 9 0 = old ; read f = new
rename: one that is open            | open f CREAT,RDWR 644 a ; rename f g ; write a text = 4 ; read g = text
rename: an error changes no time    | mkdir d ; mkdir d/e ; mkdir f ; mark d ; mark f ; rename f d = ENOTEMPTY ; changed d = EMPTY ; changed f = EMPTY
rename: a file and its link         | there put f text ; there link f g ; rename f g ; lstat f links = 2
rename: only a new name             | there put f text ; there put g more ; rename f g 1 = EEXIST ; rename f h 1 ; read h = text
rename: exchanged                   | there put f text ; there put g more ; rename f g 2
rename: flags that exclude another  | there put f text ; there put g more ; rename f g 3 = EINVAL
rename: no right to write           | mkdir d ; mkdir open ; chmod open 777 ; there put d/f text ; other rename d/f open/f = EACCES ; there put open/g text ; other rename open/g d/g = EACCES
rename: a sticky folder             | mkdir d ; there chmod d 1777 ; there make {regular|folder} d/f ; other rename d/f d/g = EPERM
rename: links at the end            | there put f text ; symlink f l ; rename l m ; readlink m = f ; read f = text
rename: a slash behind a file       | there put f text ; rename f g/ = ENOTDIR ; rename f/ g = ENOTDIR
rename: a slash behind a folder     | mkdir d ; rename d/ e/ ; lstat e type = 4
rename: the longest name            | there put f text ; rename f {name255} ; rename {name255} g ; rename g {name256} = ENAMETOOLONG
rmdir: its folder's times           | mkdir d ; mkdir d/e ; mark d ; rmdir d/e ; changed d = mc ; lstat d/e = ENOENT
rmdir: no folder                    | there make {node} n ; rmdir n = ENOTDIR
rmdir: with something in it         | mkdir d ; there make {type} d/n ; rmdir d = ENOTEMPTY
rmdir: . and ..                     | mkdir d ; mkdir d/e ; rmdir d/e/. = EINVAL ; rmdir d/e/.. = ENOTEMPTY
rmdir: through a link               | mkdir d ; symlink d l ; rmdir l = ENOTDIR ; rmdir l/ = ENOTDIR
rmdir: no right to write            | mkdir d ; mkdir d/e ; other rmdir d/e = EACCES
rmdir: a sticky folder              | mkdir d ; mkdir d/e ; there chmod d 1777 ; other rmdir d/e = EPERM
symlink: to what is not there       | symlink nowhere/at/all l ; readlink l = nowhere/at/all ; stat l = ENOENT ; lstat l type = 10
symlink: its folder's times         | mkdir d ; mark d ; symlink x d/l ; changed d = mc
symlink: a name that is there       | there make {type} n ; symlink f n = EEXIST
symlink: a long target              | symlink {name256} l ; symlink {path4095} m ; readlink m = {path4095} ; symlink {path4096} n = ENAMETOOLONG
symlink: an empty target            | symlink EMPTY l = ENOENT
symlink: a bad target               | symlink BAD l = EFAULT
symlink: no right to write          | mkdir d ; other symlink f d/l = EACCES
readlink: of what is no link        | there make {regular|folder|fifo} n ; readlink n = EINVAL
truncate: shorter and longer        | there put f 0123456789 ; truncate f 3 ; read f = 012 ; truncate f 5000 ; truncate f 2 ; read f = 01 ; truncate f 4 ; lstat f size = 4
truncate: its times                 | there put f text ; mark f ; truncate f {0|2|100} ; changed f = mc
truncate: a negative size           | there put f text ; truncate f -1 = EINVAL ; read f = text
truncate: too large                 | there put f text ; truncate f 9223372036854775807 = EFBIG
truncate: a folder                  | mkdir d ; truncate d 0 = EISDIR
truncate: a pipe                    | there make fifo p ; truncate p 0 = EINVAL
truncate: no right to write         | there put f text ; other truncate f 0 = EACCES ; read f = text
truncate: no right, its owner       | there put f text ; chmod f 444 ; truncate f 0 = EACCES
truncate: through a link            | there put f text ; symlink f l ; truncate l 2 ; read f = te
truncate: nothing                   | truncate f 0 = ENOENT ; lstat f = ENOENT
ftruncate: shorter and longer       | open f CREAT,RDWR 644 a ; write a 0123456789 = 10 ; ftruncate a 3 ; pread a 10 0 = 012 ; ftruncate a 5000 ; fstat a size = 5000
ftruncate: a negative size          | open f CREAT,RDWR 644 a ; ftruncate a -1 = EINVAL
ftruncate: to read only             | there put f text ; open f RDONLY 0 a ; ftruncate a 0 = EINVAL
ftruncate: without rights of mode   | open f CREAT,RDWR 0 a ; write a text = 4 ; ftruncate a 2 ; fstat a size = 2
ftruncate: of a removed file        | open f CREAT,RDWR 644 a ; write a text = 4 ; unlink f ; ftruncate a 2 ; pread a 9 0 = te
unlink: each type                   | there make {node} n ; unlink n ; lstat n = ENOENT
unlink: a folder                    | mkdir d ; unlink d = EISDIR
unlink: its folder's times          | mkdir d ; put d/f text ; mark d ; unlink d/f ; changed d = mc
unlink: one of two names            | there put f text ; there link f g ; mark g ; unlink f ; changed g = c ; lstat g links = 1
unlink: an error changes no time    | mkdir d ; put d/f text ; mark d ; mark d/f ; other unlink d/f = EACCES ; changed d = EMPTY ; changed d/f = EMPTY
unlink: one that is open            | open f CREAT,RDWR 644 a ; write a text = 4 ; unlink f ; lstat f = ENOENT ; pread a 9 0 = text ; write a more = 4 ; fstat a size = 8
unlink: one that is open, its links | open f CREAT,RDWR 644 a ; unlink f ; fstat a links = 0
unlink: a sticky folder             | mkdir d ; there chmod d 1777 ; there make {regular|fifo|symlink} d/n ; other unlink d/n = EPERM
unlink: a slash behind a file       | there put f text ; unlink f/ = ENOTDIR
unlink: the longest name            | open {name255} CREAT,WRONLY 644 ; unlink {name255}
utimens: a time                     | there make {regular|folder|fifo|socket} n ; utimens n 1900000000 1960000000123456789 ; lstat n mtime = 1960000000123456789
utimens: of the last access         | there put f text ; utimens f 1900000000123456789 1960000000 ; lstat f atime = 1900000000123456789
utimens: now                        | there put f text ; utimens f 10 20 ; mark f ; utimens f now now ; changed f = mc
utimens: omitted                    | there put f text ; utimens f 10 20 ; utimens f now omit ; lstat f mtime = 20 ; utimens f omit omit ; lstat f mtime = 20
utimens: the time of change         | there put f text ; utimens f 10 20 ; mark f ; utimens f 10 30 ; changed f = mc
utimens: behind 2038                | there put f text ; utimens f 4294967296000000000 4294967297000000000 ; lstat f mtime = 4294967297000000000
utimens: before 1970                | there put f text ; utimens f -1 -1000000001 ; lstat f mtime = -1000000001
utimens: of a link                  | there put f text ; utimens f 10 20 ; symlink f l ; utimens l 30 40 nofollow ; lstat l mtime = 40 ; lstat f mtime = 20 ; utimens l 50 60 ; lstat f mtime = 60 ; lstat l mtime = 40
utimens: by a descriptor            | open f CREAT,RDWR 644 a ; futimens a 10 20 ; fstat a mtime = 20 ; write a text = 4 ; lstat f size = 4
utimens: by a descriptor to read    | there put f text ; open f RDONLY 0 a ; futimens a 10 20 ; lstat f mtime = 20
utimens: not the owner              | there put f text ; chmod f 666 ; other utimens f 10 20 = EPERM ; other utimens f now now
utimens: not the owner, no right    | there put f text ; other utimens f now now = EACCES ; other utimens f 10 20 = EPERM
utimens: nothing given              | there put f text ; other utimens f omit omit
readdir: what is there              | mkdir d ; there make {type} d/n ; there put d/f text ; readdir d = f,n
readdir: no right to read           | mkdir d ; chmod d 311 ; other readdir d = EACCES ; readdir d = EACCES ; chmod d 755
access: rights                      | there put f text ; chmod f 640 ; access f 4 ; access f 1 = EACCES
"""


def rows(table):
    return [[part.strip() for part in row.split(" | ")] for row in table.strip().splitlines()]


def steps_of(line):
    """[words, expected] of each step."""
    out = []
    for step in filter(None, (one.strip() for one in line.split(" ; "))):
        words, _, result = step.partition(" = ")
        out.append((words.split(), result.strip() or None))
    return out


def expanded(name, line):
    """A case for each choice of `{a|b}`."""
    for short, long in SHORT.items():
        line = line.replace(short, long)
    parts = re.split(r"\{([^{}]*)\}", line)
    for chosen in itertools.product(*(part.split("|") for part in parts[1::2])):
        filled = "".join(a + b for a, b in itertools.zip_longest(parts[::2], chosen, fillvalue=""))
        yield " ".join((name, *chosen)), steps_of(filled)


def all_cases():
    """(name, steps). The last step of those that are put together is the one with the error."""
    out = []
    for call, line in rows(CALLS):
        for wrong, before, path, error in rows(WRONG):
            steps = " ; ".join(filter(None, (before, line.replace("{}", path) + " = " + error)))
            out += expanded(f"{call}: {wrong}", steps)
    closed = "mkdir shut ; mkdir shut/d ; there put shut/f text ; chmod shut 700 ; mkdir open ; chmod open 777 ; " \
        "there put open/f text ; chmod open/f 666"
    for call, line in rows(SHUT):
        out += expanded(f"{call}: a folder that is shut", f"{closed} ; {line} = EACCES")
    for name, line in rows(CASES):
        out += expanded(name, line)
    return out
