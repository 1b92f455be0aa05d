#include "weft-data/options.h"

#include <CLI/CLI.hpp>

#include "weft/common/message.h"

namespace weft::data {
namespace {

void add_token(CLI::App& app, Command& c) {
  app.add_option("--token-file", c.token_file,
                 "Secret that server and clients share, in a file that only you can read")
      ->type_name("FILE");
}

CLI::App* add(CLI::App& app, Command& c, Command::Kind kind, const char* name, const char* what) {
  CLI::App* sub = app.add_subcommand(name, what);
  sub->callback([&c, kind] { c.kind = kind; });
  return sub;
}

void add_serve(CLI::App& app, Command& c) {
  CLI::App* sub = add(app, c, Command::Kind::kServe, "serve",
                      "Serve files and folders to weft get, put, ls, cat and sync");
  sub->add_option("FOLDER", c.serve.folders, "What to serve. Several appear by their last names")
      ->type_name("FOLDER")
      ->required();
  add_listen_options(*sub, c.listen);
  sub->add_flag("--writable", c.serve.writable, "Let clients create, replace and remove files");
  add_token(*sub, c);
  sub->add_flag("--open", c.serve.open_access,
                "Serve clients of other machines without a token. Everybody who reaches the port "
                "can read the files, and with --writable change them");
  sub->add_flag("--direct", c.serve.direct,
                "Read past the page cache (O_DIRECT): for files that are read once and are larger "
                "than memory");
  sub->add_option("--max-clients", c.serve.max_clients, "Refuse more clients at once")
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--staging", c.serve.staging_bytes, "Memory, in bytes, that files pass through")
      ->type_name("BYTES")
      ->check(CLI::Range(std::uint64_t{1} << 20U, std::uint64_t{1} << 36U).description(""))
      ->capture_default_str();
  sub->add_option("--stall", c.serve.stall_seconds,
                  "Drop a client that has asked for data and takes none for so long")
      ->type_name("SECONDS")
      ->check(CLI::Range(1U, 3600U).description(""))
      ->capture_default_str();
  sub->add_flag("!--quiet", c.serve.log, "Log no connections");
  sub->add_option("--announce-fd", c.announce_fd, "Write the port to this descriptor")->group("");
  sub->footer(
      "Ends on SIGINT and SIGTERM. Without --token-file and --open only clients on this "
      "machine are served.");
}

CLI::App* add_copy(CLI::App& app, Command& c, Command::Kind kind, const char* name,
                   const char* what, const char* paths) {
  CLI::App* sub = add(app, c, kind, name, what);
  sub->add_option("PATH", c.copy.paths, paths)->type_name("PATH")->required()->expected(2, -1);
  sub->add_flag("-q,--quiet", c.copy.quiet, "No progress");
  sub->add_flag("--stats", c.copy.stats, "Print rate and CPU time at the end");
  sub->add_option("--retry", c.copy.options.retry_seconds,
                  "Seconds to try to reach a server that was lost")
      ->type_name("SECONDS")
      ->capture_default_str();
  add_token(*sub, c);
  add_port_option(*sub, c.port);
  sub->footer(
      "A remote path is HOST:PATH, HOST:PORT:PATH or weft://HOST:PORT/PATH; HOST:./PATH where PATH "
      "begins with a number. A slash at the end of a source means what is in the folder. Exit "
      "codes: 0 all done, 1 something failed, 2 wrong usage.");
  return sub;
}

void add_get(CLI::App& app, Command& c) {
  CLI::App* sub = add_copy(app, c, Command::Kind::kGet, "get", "Copy files from a server",
                           "HOST[:PORT]:PATH... and the destination");
  sub->add_flag("-r,--recursive", c.copy.options.recursive,
                "Copy folders with all that is in them");
  sub->add_flag("--verify", c.copy.options.verify, "Compare checksums with the server's files");
  sub->add_flag("!--no-resume", c.copy.options.resume,
                "Start anew where an earlier copy was interrupted");
}

void add_put(CLI::App& app, Command& c) {
  CLI::App* sub = add_copy(app, c, Command::Kind::kPut, "put", "Copy files to a server",
                           "Sources and HOST[:PORT]:PATH");
  sub->add_flag("-r,--recursive", c.copy.options.recursive,
                "Copy folders with all that is in them");
  sub->add_flag("--verify", c.copy.options.verify, "Compare checksums with the server's files");
  sub->add_flag("!--no-resume", c.copy.options.resume,
                "Start anew where an earlier copy was interrupted");
  sub->add_flag("--durable", c.copy.options.durable,
                "Wait until each file is on the server's disk");
}

void add_sync(CLI::App& app, Command& c) {
  CLI::App* sub = add_copy(app, c, Command::Kind::kSync, "sync",
                           "Copy what differs in size or time, from or to a server",
                           "Source and destination; one of them remote");
  sub->add_flag("--delete", c.copy.options.remove,
                "Remove from the destination what the source does not have; folders when they are "
                "empty");
  sub->add_flag("--verify", c.copy.options.verify, "Compare checksums of the copied files");
}

}  // namespace

bool parse(int argc, char** argv, Command& c, int& exit_code) {
  CLI::App app{"Files over RDMA.", "weft"};
  app.formatter(cli::help_formatter());  // the commands inherit it
  app.require_subcommand(1);
  add_serve(app, c);
  add_get(app, c);
  add_put(app, c);
  add_sync(app, c);
  CLI::App* ls = add(app, c, Command::Kind::kList, "ls", "List a folder of a server");
  ls->add_option("PATH", c.copy.paths, "Folders or files of a server")
      ->type_name("HOST[:PORT]:PATH")
      ->required();
  ls->add_flag("-l,--long", c.long_list, "Type, permissions, size and time too");
  CLI::App* cat = add(app, c, Command::Kind::kCat, "cat", "Write a server's files to the output");
  cat->add_option("PATH", c.copy.paths, "Files of a server")
      ->type_name("HOST[:PORT]:PATH")
      ->required();
  for (CLI::App* sub : {ls, cat}) {
    add_token(*sub, c);
    add_port_option(*sub, c.port);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help is no error.
    exit_code = error.get_exit_code() == 0 ? app.exit(error)
                                           : cli::report_failure(cli::explain(error, app));
    return false;
  }
  return true;
}

}  // namespace weft::data
