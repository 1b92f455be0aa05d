#include "check/module/fault_record.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "check/module/output.h"
#include "check/module/process_name.h"
#include "os/fd.h"
#include "os/say.h"

namespace weft::check {
namespace {

constexpr const char* kVariable = "WEFT_FAULTS_NTH";

std::string file_name(const std::string& folder) {
  return folder.empty() ? "" : folder + "/" + std::to_string(getpid()) + ".calls";
}

// The file is opened each time: programs close descriptors that are not theirs, and get the number
// for something else.
bool write_line(const std::string& file, const nlohmann::json& line) {
  const os::Fd to(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  return to &&
         put(to.get(), line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// A shell or a launcher keeps it for itself how its children ended, so a crash is recorded here.
// The folder of the report, ended by a null; only what a handler of signals may use.
char crash_folder[PATH_MAX];

void record_crash(int signal) {
  std::array<char, PATH_MAX + 32> file{};
  const std::size_t length = std::strlen(crash_folder);
  std::memcpy(file.data(), crash_folder, length);
  file[length] = '/';
  char* const number = file.data() + length + 1;
  // The child of a fork has a file, too, though it is not observed otherwise.
  const auto end = std::to_chars(number, file.data() + file.size() - 8, getpid());
  std::memcpy(end.ptr, ".calls", 7);
  std::array<char, 32> line = {"{\"signal\": "};
  char* const at = line.data() + std::strlen(line.data());
  char* const stop = std::to_chars(at, line.data() + line.size() - 2, signal).ptr;
  std::memcpy(stop, "}\n", 2);
  const auto size = static_cast<std::size_t>(stop + 2 - line.data());
  {
    const os::Fd to(::open(file.data(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    static_cast<void>(::write(to.get(), line.data(), size) == 0);
  }
  raise(signal);  // it comes when this handler returns, and ends the process as it would have
}

void watch_crashes(const std::string& folder) {
  if (folder.size() >= sizeof crash_folder) return;
  std::memcpy(crash_folder, folder.c_str(), folder.size() + 1);
  for (const int signal : {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction after {};
    after.sa_handler = record_crash;
    after.sa_flags = static_cast<int>(SA_RESETHAND | SA_ONSTACK);
    sigaction(signal, &after, nullptr);
  }
}

}  // namespace

std::unique_ptr<FaultRecord> FaultRecord::open(const std::string& folder) {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return nullptr;
  const auto plan = faults::plan_of(text);
  if (!plan) {
    os::say("weft: %s=%s is not NTH, NTH,PER_PLACE or NTH,PER_PLACE,PROCESS\n", kVariable, text);
    return nullptr;
  }
  if (!folder.empty()) watch_crashes(folder);
  return std::make_unique<FaultRecord>(*plan, faults::identity(rank_of_process(), command_line()),
                                       folder);
}

FaultRecord::FaultRecord(const faults::Plan& plan, std::string process, const std::string& folder)
    : by_place_(plan.per_place != 0),
      process_(std::move(process)),
      file_(file_name(folder)),
      counter_(plan, process_) {}

bool FaultRecord::next(std::uint64_t place) {
  if (!started_ && !file_.empty()) {
    if (!write_line(file_, {{"process", process_}})) {
      tell_user("weft: %s cannot be written: %s\n", file_.c_str(), std::strerror(errno));
    }
  }
  started_ = true;
  return counter_.next(place);
}

bool FaultRecord::failing(const char* call, int error, const std::vector<Frame>& frames) {
  const char* name = strerrorname_np(error);
  if (file_.empty()) {
    tell_user("weft faults: call %llu, %s, fails with %s\n  called at %s\n",
              static_cast<unsigned long long>(counter_.count()), call, name,
              places(frames, "\n         by ").c_str());
    return true;
  }
  return write_line(file_, {{"call", call}, {"error", name}, {"at", as_strings(frames)}});
}

void FaultRecord::ended(int status, const std::vector<PlacedNote>& left) {
  if (!started_) return;
  if (file_.empty())
    return tell_user("weft faults: %llu calls that may fail\n",
                     static_cast<unsigned long long>(counter_.count()));
  auto handles = nlohmann::json::array();
  for (const PlacedNote& one : left)
    handles.push_back({{"kind", one.text}, {"at", as_strings(one.frames)}});
  static_cast<void>(write_line(
      file_, {{"calls", counter_.count()}, {"status", status & 0xff}, {"left", handles}}));
}

}  // namespace weft::check
