// How the server is, in words: at its end, and for `weft serve --status`.
#include <cstdarg>
#include <cstdio>

#include "files/protocol/cpu_time.h"
#include "files/server/data_server.h"

namespace weft::files {
namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* how, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, how);
  std::vsnprintf(line, sizeof line, how, arguments);
  va_end(arguments);
  return line;
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1U << 20U); }

long long seconds_since(Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - then).count();
}

unsigned long long number(std::uint64_t value) { return value; }

}  // namespace

std::string ServeCounters::text() const {
  return format(
      "%llu clients, %llu refused, %llu of other versions, %llu stalled, %llu wrong tokens, "
      "%llu requests, %llu errors, %.3f GB out, %.3f GB in, %s",
      number(clients), number(refused_clients), number(other_versions), number(stalled),
      number(refused_tokens), number(requests), number(errors),
      static_cast<double>(bytes_out) / 1e9, static_cast<double>(bytes_in) / 1e9,
      cpu_text(bytes_out + bytes_in).c_str());
}

std::string Server::status() const {
  std::size_t unproved = 0;
  std::string clients;
  for (const auto& session : sessions_) {
    if (session->dead()) continue;
    if (!session->ready()) ++unproved;
    clients += format("client %s: %s, connected for %lld s, %zu open files, %.1f MiB staging\n",
                      text_of(rdma_get_peer_addr(session->id())).c_str(),
                      session->ready() ? "ready" : "not ready", seconds_since(session->created()),
                      session->open_files(), mib(session->held_bytes()));
  }
  std::string out = format("port: %u\nprotocol version: %u\nrunning for: %lld s\nwritable: %s\n",
                           unsigned{port()}, kVersion, seconds_since(started_),
                           shared_.tree.writable() ? "yes" : "no");
  out +=
      format("token: %s\nfiles by: %s\n", shared_.options.token.empty() ? "none" : "required",
             shared_.disk->engine() == readsend::Disk::Engine::kThreads ? "threads" : "io_uring");
  for (const auto& port : ports_) {
    out += format("staging: %.1f of %.1f MiB, on %s\n", mib(port->staging().held_bytes),
                  mib(shared_.options.staging_bytes), ibv_get_device_name(port->verbs()->device));
  }
  out += format("clients now: %u of at most %u, and %zu not ready\n", shared_.ready,
                shared_.options.max_clients, unproved);
  return out + "so far: " + shared_.counters.text() + "\n" + clients;
}

}  // namespace weft::files
