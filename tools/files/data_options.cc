#include "files/data_options.h"

#include "weft/common/arguments.h"
#include "weft/common/message.h"

namespace weft::data {
namespace {

void add_token(cli::Arguments& app, Command& c) {
  app.add_option("--token-file", c.token_file,
                 "Secret that server and clients share, in a file that only you can read")
      .type_name("FILE");
}

cli::Arguments* add(cli::Arguments& app, Command& c, Command::Kind kind, const char* name,
                    const char* what) {
  cli::Arguments* sub = app.add_subcommand(name, what);
  sub->callback([&c, kind] { c.kind = kind; });
  return sub;
}

void add_serve(cli::Arguments& app, Command& c) {
  cli::Arguments* sub = add(app, c, Command::Kind::kServe, "serve",
                            "Serve files and folders to weft get, put, ls, cat and sync");
  sub->add_option("FOLDER", c.serve.folders, "What to serve. Several appear by their last names")
      .type_name("FOLDER");
  sub->add_flag("--status", c.status,
                "Print how the server is that runs on this machine at the port, and end. For the "
                "server's user and root");
  sub->add_option("--reload", c.reload,
                  "Give the server of this machine at the port, which is process PID, the token of "
                  "--token-file, and end. For the server's user and root")
      .type_name("PID")
      .between(1U, 1U << 22U);
  add_listen_options(*sub, c.listen);
  sub->add_flag("--writable", c.serve.writable, "Let clients create, replace and remove files");
  sub->add_flag(
      "--owners", c.serve.owners,
      "Let clients that may write set owners, all bits of a mode, and extended attributes "
      "that need privileges: for put -a to a server that runs as root");
  add_token(*sub, c);
  sub->add_flag("--open", c.serve.open_access,
                "Serve clients of other machines without a token. Everybody who reaches the port "
                "can read the files, and with --writable change them");
  sub->add_flag("--direct", c.serve.direct,
                "Read past the page cache (O_DIRECT): for files that are read once and are larger "
                "than memory");
  sub->add_option("--max-clients", c.serve.max_clients, "Refuse more clients at once")
      .type_name("N")
      .between(1U, 1U << 20U)
      .show_default();
  sub->add_option("--staging", c.serve.staging_bytes, "Memory, in bytes, that files pass through")
      .type_name("BYTES")
      .between(std::uint64_t{1} << 20U, std::uint64_t{1} << 36U)
      .show_default();
  sub->add_option("--stall", c.serve.stall_seconds,
                  "Drop a client that has asked for data and takes none for so long")
      .type_name("SECONDS")
      .between(1U, 3600U)
      .show_default();
  sub->add_flag("!--quiet", c.serve.log, "Log no connections");
  sub->add_option("--announce-fd", c.announce_fd, "Write the port to this descriptor").group("");
  sub->footer(
      "Ends on SIGINT and SIGTERM. SIGUSR1: reads the token file again. Without --token-file and "
      "--open only clients on this "
      "machine are served, and of those only your own and root's.");
}

void add_timeout(cli::Arguments& app, Command& c) {
  app.add_option("--timeout", c.timeout_seconds,
                 "Give up a server that answers nothing for so long; 0 waits for ever. Slower "
                 "links than 300 kbit/s need more")
      .type_name("SECONDS")
      .between(0U, 86400U)
      .show_default();
}

// Rules in the order of the command line: the first that matches a name decides.
void add_filter(cli::Arguments& command, Command& c) {
  command
      .add_each(
          "--exclude", [&c](const std::string& text) { c.copy.options.filter.exclude(text); },
          "Leave names alone that match, here and there; may be given several times. "
          "'*.o': names anywhere; 'a/b': ends of paths; '/a': from the top of the tree; "
          "'a/': folders only; ** matches slashes, too")
      .type_name("PATTERN");
  command
      .add_each(
          "--include", [&c](const std::string& text) { c.copy.options.filter.include(text); },
          "Take names that match, whatever later rules say. Of --include, --exclude and --filter "
          "the first rule that matches decides")
      .type_name("PATTERN");
  command
      .add_each(
          "--filter",
          [&c](const std::string& text) {
            const auto ok = c.copy.options.filter.add_rule(text);
            if (!ok && c.wrong_filter.empty()) c.wrong_filter = ok.error().text();
          },
          "A rule of rsync: '- PATTERN', '+ PATTERN'; with H or S for the source alone, P or R for "
          "what the destination removes; '!' forgets the rules before it")
      .type_name("RULE");
}

void add_lists(cli::Arguments& command, Command& c) {
  command.add_flag("-n,--dry-run", c.copy.options.dry_run,
                   "Change nothing, and print what would be done");
  command.add_flag("--json", c.copy.report.json,
                   "Print what is done, or would be, as JSON: an object a line, totals last");
  command
      .add_option("--manifest", c.copy.report.manifest,
                  "Write each name of the copy to this file, as --json has it, also what is there "
                  "already")
      .type_name("FILE");
}

cli::Arguments* add_copy(cli::Arguments& app, Command& c, Command::Kind kind, const char* name,
                         const char* what, const char* paths) {
  cli::Arguments* sub = add(app, c, kind, name, what);
  sub->add_option("PATH", c.copy.paths, paths).type_name("PATH").required();
  sub->add_flag("-q,--quiet", c.copy.report.quiet, "No progress");
  sub->add_flag("--stats", c.copy.report.stats, "Print rate and CPU time at the end");
  sub->add_option("--retry", c.copy.options.retry_seconds,
                  "Seconds to try to reach a server that was lost")
      .type_name("SECONDS")
      .show_default();
  sub->add_option("--bwlimit", c.copy.options.bytes_per_second,
                  "Copy at most so many bytes of files a second, on the average; 0: no limit")
      .type_name("BYTES")
      .show_default();
  sub->add_option("-j,--streams", c.copy.options.streams,
                  "Further connections for the files of a tree; a small tree has fewer")
      .type_name("N")
      .between(1U, 64U)
      .show_default();
  sub->add_option("--queued-files", c.copy.options.queued_files,
                  "Files of a tree that are noted before they are copied")
      .group("");
  add_timeout(*sub, c);
  add_token(*sub, c);
  add_port_option(*sub, c.port);
  add_lists(*sub, c);
  add_filter(*sub, c);
  sub->footer(
      "A remote path is HOST:PATH, HOST:PORT:PATH or weft://HOST:PORT/PATH; HOST:./PATH where PATH "
      "begins with a number. A slash at the end of a source means what is in the folder. Exit "
      "codes: 0 all done, 1 something failed, 2 wrong usage, 24 a file changed and "
      "--allow-changing kept what was copied.");
  return sub;
}

constexpr const char* kDurable = "Wait until each file is on the disk, before it gets its name";

void add_promises(cli::Arguments& command, Command& c, const char* durable) {
  command.add_flag("--durable", c.copy.options.durable, durable);
  command.add_flag("--strict", c.copy.options.strict,
                   "Only files that nobody has open for writing while they are copied, not even "
                   "through a mapping: by a read lease, which local file systems have and the "
                   "file's owner gets");
  command.add_flag(
      "-a,--archive", c.copy.options.archive,
      "Folders with all that is in them, as rsync -a: also times of folders and links, "
      "extended attributes, further names of a file, FIFOs; and where root copies, "
      "owners and devices");
  command.add_flag("-A,--acls", c.copy.options.acls,
                   "Lists of who may do what (POSIX ACLs), too. Means -a");
  command.add_flag(
      "--allow-changing", c.copy.options.allow_changing,
      "Keep what was copied of a file that changed meanwhile, as far as it went at the "
      "beginning: for logs that grow. A warning, and exit code 24");
}

void add_direct(cli::Arguments& command, Command& c) {
  command.add_flag(
      "--direct", c.copy.options.direct,
      "Write files of more than 64 KiB past the page cache of this machine (O_DIRECT), "
      "where its file system can: for files that are larger than memory, or not read "
      "again soon");
}

void add_get(cli::Arguments& app, Command& c) {
  cli::Arguments* sub = add_copy(app, c, Command::Kind::kGet, "get", "Copy files from a server",
                                 "HOST[:PORT]:PATH... and the destination");
  sub->add_flag("-r,--recursive", c.copy.options.recursive,
                "Copy folders with all that is in them");
  sub->add_flag("--verify", c.copy.options.verify, "Compare checksums with the server's files");
  sub->add_flag("!--no-resume", c.copy.options.resume,
                "Start anew where an earlier copy was interrupted");
  add_direct(*sub, c);
  add_promises(*sub, c, kDurable);
}

void add_put(cli::Arguments& app, Command& c) {
  cli::Arguments* sub = add_copy(app, c, Command::Kind::kPut, "put", "Copy files to a server",
                                 "Sources and HOST[:PORT]:PATH");
  sub->add_flag("-r,--recursive", c.copy.options.recursive,
                "Copy folders with all that is in them");
  sub->add_flag("--verify", c.copy.options.verify, "Compare checksums with the server's files");
  sub->add_flag("!--no-resume", c.copy.options.resume,
                "Start anew where an earlier copy was interrupted");
  add_promises(*sub, c, kDurable);
}

void add_sync(cli::Arguments& app, Command& c) {
  cli::Arguments* sub = add_copy(app, c, Command::Kind::kSync, "sync",
                                 "Copy what differs in size or time, from or to a server",
                                 "Source and destination; one of them remote");
  sub->add_flag("--delete", c.copy.options.remove,
                "Remove from the destination what the source does not have; folders when they are "
                "empty. Last, and only if nothing failed before");
  sub->add_flag(
      "--delete-excluded", c.copy.options.delete_excluded,
      "Remove names from the destination, too, that --exclude leaves out. Means --delete");
  sub->add_option("--max-delete", c.copy.options.max_delete,
                  "Remove nothing if that would be more names than this")
      .type_name("N");
  sub->add_flag("--force-delete", c.copy.options.force_delete,
                "Remove also where the source is empty, or on another file system than the last "
                "time");
  sub->add_option("--names-memory", c.copy.options.names_bytes,
                  "Octets of names to remove that are kept, rather than looked for twice")
      .group("");
  sub->add_flag("--verify", c.copy.options.verify, "Compare checksums of the copied files");
  sub->add_flag("!--no-durable", c.copy.sync_waits,
                "Do not wait until what is copied is on the disk");
  add_direct(*sub, c);
  add_promises(*sub, c,
               "Flush also files to the disk that are there already. Files that are copied, and "
               "names, are on the disk in any case before sync ends, without --no-durable");
}

}  // namespace

bool parse(int argc, char** argv, Command& c, int& exit_code) {
  cli::Arguments app{"Files over RDMA.", "weft"};
  app.require_subcommand(1, 1);
  add_serve(app, c);
  add_get(app, c);
  add_put(app, c);
  add_sync(app, c);
  cli::Arguments* ls = add(app, c, Command::Kind::kList, "ls", "List a folder of a server");
  ls->add_option("PATH", c.copy.paths, "Folders or files of a server")
      .type_name("HOST[:PORT]:PATH")
      .required();
  ls->add_flag("-l,--long", c.long_list, "Type, permissions, size and time too");
  cli::Arguments* cat =
      add(app, c, Command::Kind::kCat, "cat", "Write a server's files to the output");
  cat->add_option("PATH", c.copy.paths, "Files of a server")
      .type_name("HOST[:PORT]:PATH")
      .required();
  for (cli::Arguments* sub : {ls, cat}) {
    add_timeout(*sub, c);
    add_token(*sub, c);
    add_port_option(*sub, c.port);
  }
  const auto end = app.parse(argc, argv);
  if (end) exit_code = *end;
  if (c.copy.options.acls) c.copy.options.archive = true;
  if (c.copy.options.archive) c.copy.options.recursive = true;
  c.copy.report.list = c.copy.options.dry_run;
  if (c.copy.options.delete_excluded) c.copy.options.remove = true;
  return !end;
}

}  // namespace weft::data
