#include "files/data_places.h"

#include <fmt/format.h>

#include "weft/common/arguments.h"
#include "weft/common/message.h"

namespace weft::data {

void add_listen_options(cli::Arguments& command, ListenOptions& options) {
  command
      .add_option("--listen", options.listen,
                  "Where to listen; port 0 chooses one. Default: port 7180 of every address")
      .type_name("[ADDRESS:]PORT");
  command
      .add_option("--port", options.port,
                  "Port to listen on, where --listen does not name it; 0 chooses one")
      .type_name("PORT")
      .default_text(std::to_string(files::kDefaultPort));
}

cli::Outcome<void> apply(const ListenOptions& options, files::ServeOptions& serve) {
  const auto place = cli::parse_listen_place(options.listen);
  if (!place) return cli::named("--listen", place.error());
  if (place->port && options.port && *place->port != *options.port) {
    return cli::usage_error(
        fmt::format("--listen {} and --port {} name different ports; leave --port out",
                    options.listen, *options.port));
  }
  if (!options.port && !place->hint.empty()) cli::say("--listen: " + place->hint);
  serve.address = place->host;
  serve.port = place->port.value_or(options.port.value_or(files::kDefaultPort));
  return {};
}

void add_port_option(cli::Arguments& command, PortOption& port) {
  command.add_option("--port", port, "Port of the server, where the path does not name it")
      .type_name("PORT")
      .default_text(std::to_string(files::kDefaultPort));
}

cli::Outcome<cli::RemotePath> remote_path(const std::string& text, PortOption port,
                                          const std::string& why) {
  const auto found = cli::parse_remote_path(text, port, files::kDefaultPort);
  if (!found) return tl::unexpected(found.error());
  if (!*found) return cli::usage_error(text + ": " + why);
  if (!(*found)->hint.empty()) cli::say((*found)->hint);
  return **found;
}

}  // namespace weft::data
