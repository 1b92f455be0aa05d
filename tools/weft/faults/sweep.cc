#include "weft/faults/sweep.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "faults/plan.h"
#include "weft/faults/child.h"
#include "weft/faults/record.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kTimeLimitAtLeast = 10;
constexpr double kTimeLimitFactor = 3;  // of the run without a fault

// The folder of the reports; a temporary one goes with this object.
class Folder {
 public:
  static Outcome<Folder> make(const std::string& wanted) {
    std::error_code error;
    if (wanted.empty()) {
      std::string name = fs::temp_directory_path(error) / "weft-faults-XXXXXX";
      if (error || mkdtemp(name.data()) == nullptr)
        return failure(fmt::format("{}: {}", name, std::strerror(errno)));
      return Folder(name, true);
    }
    fs::create_directories(wanted, error);
    if (error) return failure(fmt::format("--report: {}: {}", wanted, error.message()));
    if (!fs::is_empty(wanted, error))
      return usage_error(fmt::format("--report: {} is not empty; name a new folder", wanted));
    return Folder(fs::absolute(wanted, error), false);
  }
  Folder(Folder&& other) noexcept : path_(std::move(other.path_)), temporary_(other.temporary_) {
    other.temporary_ = false;
  }
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (temporary_) fs::remove_all(path_, ignored);
  }

  [[nodiscard]] Outcome<std::string> enter(const std::string& name) const {
    const fs::path path = fs::path(path_) / name;
    std::error_code error;
    fs::create_directory(path, error);
    if (error) return failure(fmt::format("{}: {}", path.string(), error.message()));
    return path.string();
  }
  // Keeps the output of a run. It fails where its processes could not write either.
  [[nodiscard]] Outcome<void> finish(const std::string& path, const std::string& output) const {
    constexpr std::size_t kRoom = 64 * 1024;  // more than the records of a run take
    const std::string file = path + "/output";
    std::ofstream out(file, std::ios::binary);
    out << output << std::string(kRoom, '\0') << std::flush;
    std::error_code error;
    if (out) fs::resize_file(file, output.size(), error);
    if (!out || error)
      return failure(fmt::format("{} cannot be written: is the disk full?", file), kExitNoSweep);
    if (temporary_) fs::remove_all(path, error);
    return {};
  }

 private:
  Folder(std::string path, bool temporary) : path_(std::move(path)), temporary_(temporary) {}

  std::string path_;
  bool temporary_;
};

class Sweep {
 public:
  Sweep(const SweepOptions& options, std::string file, Folder folder)
      : options_(options), file_(std::move(file)), folder_(std::move(folder)) {}

  // The run in which no call fails: what the others are compared with.
  Outcome<void> run_plain() {
    auto run = run_once({0, options_.per_place, ""}, "plain");
    if (!run) return tl::unexpected(run.error());
    swept_.plain = std::move(*run);
    if (swept_.interrupted != 0) return {};
    return check_plain();
  }

  Outcome<void> run_all() {
    const std::vector<std::string> processes = faults::processes_of(swept_.plain);
    for (std::size_t i = 0; i < processes.size() && !is_over(); ++i) {
      if (!options_.process.empty() &&
          fnmatch(options_.process.c_str(), processes[i].c_str(), 0) != 0) {
        continue;
      }
      const std::string prefix = processes.size() > 1 ? fmt::format("{}.", i + 1) : "";
      if (auto done = run_process(processes[i], prefix); !done) return done;
    }
    if (runs_ == options_.limit) {
      swept_.remarks.push_back(
          fmt::format("stopped after {} runs (--limit); there may be more calls", runs_));
    }
    return {};
  }

  Swept& swept() { return swept_; }

 private:
  [[nodiscard]] bool is_over() const { return swept_.interrupted != 0 || runs_ == options_.limit; }

  Outcome<void> check_plain() {
    const faults::SweepRun& plain = swept_.plain;
    std::string what;
    if (plain.timed_out) {
      what = fmt::format("it does not end within {:.0f} s (--time-limit)", time_limit());
    } else if (const int signal = faults::crash_of(plain); signal != 0) {
      what = fmt::format("a process of it is ended by signal {}", signal);
    } else if (plain.status != 0) {
      what = fmt::format("its exit status is {}", plain.status);
    } else if (faults::processes_of(plain).empty()) {
      what = "no process of it makes a call that may fail (`weft faults calls`) over Weft";
    }
    if (what.empty()) {
      swept_.time_limit_s =
          options_.time_limit_s > 0
              ? options_.time_limit_s
              : std::max(kTimeLimitAtLeast, kTimeLimitFactor * swept_.plain.seconds);
      return {};
    }
    if (!plain.said.empty()) what += "; it said: " + plain.said;
    return failure(fmt::format("no call was to fail yet, and {}", what), kExitNoSweep);
  }

  Outcome<void> run_process(const std::string& process, const std::string& prefix) {
    const std::uint64_t expected = faults::calls_of(swept_.plain, process);
    std::string missed;
    for (std::uint64_t nth = options_.from; !is_over(); ++nth, ++runs_) {
      auto run = run_once({nth, options_.per_place, process}, fmt::format("{}{}", prefix, nth));
      if (!run) return tl::unexpected(run.error());
      if (swept_.interrupted != 0) break;
      if (faults::fault_of(*run) != nullptr) {
        faults::Verdict verdict = faults::judge(*run, swept_.plain);
        show(*run, verdict);
        swept_.rows.push_back({std::move(*run), std::move(verdict)});
        continue;
      }
      note_difference(*run);
      if (nth > expected) break;
      missed += fmt::format("{}{}", missed.empty() ? "" : ", ", nth);
    }
    if (!missed.empty()) {
      swept_.remarks.push_back(
          fmt::format("did not fail, because fewer calls were made in their run than in the run "
                      "without a fault ({}): {}",
                      expected, missed));
    }
    return {};
  }

  // A run in which no call failed should be as the plain one.
  void note_difference(const faults::SweepRun& run) {
    if (run.timed_out || faults::crash_of(run) != 0 || run.status != swept_.plain.status) {
      swept_.remarks.push_back(
          fmt::format("run {}: no call failed, and it ended otherwise than before: {}", run.nth,
                      faults::result_text({run, faults::judge(run, swept_.plain)})));
    }
  }

  void show(const faults::SweepRun& run, const faults::Verdict& verdict) const {
    if (!options_.progress) return;
    fmt::print(stderr, "weft faults: {} {}: {}\n", run.nth, faults::fault_of(run)->call,
               faults::result_text({run, verdict}));
  }

  [[nodiscard]] double time_limit() const {
    if (options_.time_limit_s > 0) return options_.time_limit_s;
    constexpr double kPlain = 600;
    return swept_.time_limit_s > 0 ? swept_.time_limit_s : kPlain;
  }

  // Others wait for a peer that failed as a rule: they need not have all of the time.
  [[nodiscard]] double time_for_others() const {
    constexpr double kFactor = 2;
    constexpr double kAtLeast = 1;
    return std::max(kAtLeast, kFactor * swept_.plain.seconds);
  }
  // Whether the process whose call failed has ended.
  static bool is_gone(const std::string& folder, const std::string& process) {
    faults::SweepRun run;
    run.process = process;
    read_records(folder, run);
    const faults::Image* image = faults::image_with_fault(run);
    return image != nullptr && image->ended;
  }

  Outcome<faults::SweepRun> run_once(const faults::Plan& plan, const std::string& name) {
    const Outcome<std::string> folder = folder_.enter(name);
    if (!folder) return tl::unexpected(folder.error());
    setenv("WEFT_CHECK_REPORT", folder->c_str(), 1);
    setenv("WEFT_FAULTS_NTH", faults::as_text(plan).c_str(), 1);
    const Outcome<ChildEnd> end = run_child(
        file_, options_.program.program,
        {time_limit(), [&] { return is_gone(*folder, plan.process); }, time_for_others()});
    if (!end) return tl::unexpected(end.error());
    faults::SweepRun run;
    run.nth = plan.nth;
    run.process = plan.process;
    run.timed_out = end->timed_out;
    run.alive = end->alive;
    run.status = end->status;
    run.signal = end->signal;
    run.seconds = end->seconds;
    run.said = last_line(end->output);
    read_records(*folder, run);
    swept_.interrupted = end->interrupted;
    if (auto kept = folder_.finish(*folder, end->output); !kept)
      return tl::unexpected(kept.error());
    return run;
  }

  const SweepOptions& options_;
  const std::string file_;
  const Folder folder_;
  std::uint64_t runs_ = 0;
  Swept swept_;
};

}  // namespace

Outcome<Swept> sweep(const SweepOptions& o) {
  if (auto ready = prepare_for_children(); !ready) return tl::unexpected(ready.error());
  const Outcome<Prepared> prepared = prepare(o.program);
  if (!prepared) return tl::unexpected(prepared.error());
  if (auto ready = set_up_check({"", o.suppress, ""}, prepared->folder); !ready)
    return tl::unexpected(ready.error());
  auto folder = Folder::make(o.report);
  if (!folder) return tl::unexpected(folder.error());
  Sweep all(o, prepared->path, std::move(*folder));
  if (auto done = all.run_plain(); !done) return tl::unexpected(done.error());
  if (auto done = all.run_all(); !done) return tl::unexpected(done.error());
  return std::move(all.swept());
}

}  // namespace weft::cli
