// The command line of weft-data: what is to be done.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/client/fetch.h"
#include "files/copy_report.h"
#include "files/data_places.h"
#include "files/server/server_shared.h"

namespace weft::data {

struct CopyCommand {
  files::CopyOptions options;
  bool sync_waits = true;          // sync: without --no-durable
  std::vector<std::string> paths;  // sources, and the destination last
  ReportOptions report;
};

struct Command {
  enum class Kind : std::uint8_t { kNone, kServe, kGet, kPut, kList, kCat, kSync };
  Kind kind = Kind::kNone;
  files::ServeOptions serve;
  ListenOptions listen;
  bool status = false;   // serve: ask the server that runs already
  unsigned reload = 0;   // serve: the process of the server that gets the token; 0: none
  int announce_fd = -1;  // serve: the port is written here
  std::string token_file;
  PortOption port;
  CopyCommand copy;
  bool long_list = false;
  std::string wrong_filter;       // what is wrong with a rule of --filter
  unsigned timeout_seconds = 30;  // of silence; 0: for ever
};

// Reads the command line; on wrong usage or --help prints what is to be said and sets `exit_code`.
[[nodiscard]] bool parse(int argc, char** argv, Command& command, int& exit_code);

}  // namespace weft::data
