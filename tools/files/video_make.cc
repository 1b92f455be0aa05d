#include "files/video_make.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "files/client/local.h"
#include "files/protocol/outcome.h"
#include "files/video/pattern.h"
#include "weft/common/replace_file.h"

namespace weft::tv {
namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t g_ended_by = 0;  // the signal

// "clip.bgra" becomes "clip.1280x720@35.bgra".
std::string name_of(const MakeCommand& c) {
  constexpr std::string_view kRaw = ".bgra";
  if (!c.file.ends_with(kRaw) || video::parse_raw_name(c.file)) return c.file;
  return c.file.substr(0, c.file.size() - kRaw.size()) + "." + c.size + "@" + c.rate + ".bgra";
}

// A file under a name of its own until it is whole.
class NewFile {
 public:
  NewFile() = default;
  ~NewFile() {
    if (!part_.empty()) ::unlink(part_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  [[nodiscard]] files::Outcome<void> open(const std::string& name) {
    name_ = name;
    const auto target = cli::name_to_replace(name);
    if (!target) return open_in_place();
    struct stat old {};
    const bool there = stat(target->c_str(), &old) == 0;
    const auto unique = files::unique_part_name();
    if (!unique) return files::failed(unique.error().error, name);
    const std::string part = fs::path(*target).replace_filename(*unique).string();
    file_ = os::Fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_ && there && errno == EACCES) return open_in_place();
    if (!file_) return files::failed(errno, name);
    name_ = *target;
    part_ = part;
    if (there && fchmod(file_.get(), old.st_mode & 07777U) != 0) return files::failed(errno, name);
    return {};
  }

  // 0 or an errno
  [[nodiscard]] int put(std::span<const std::uint8_t> data) {
    return files::write_fully(file_.get(), data.data(), data.size());
  }

  [[nodiscard]] files::Outcome<void> finish() {
    if (::close(file_.release()) != 0) return files::failed(errno, name_);
    if (part_.empty()) return {};
    if (::rename(part_.c_str(), name_.c_str()) != 0) return files::failed(errno, name_);
    part_.clear();
    return {};
  }

 private:
  [[nodiscard]] files::Outcome<void> open_in_place() {
    file_ = os::Fd(::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    return file_ ? files::Outcome<void>() : files::failed(errno, name_);
  }

  std::string name_, part_;
  os::Fd file_;
};

std::span<const std::uint8_t> octets(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

files::Outcome<void> write_film(const std::string& name, const video::Film& film,
                                std::uint64_t frames) {
  NewFile file;
  if (auto ok = file.open(name); !ok) return ok;
  const bool y4m = film.format == video::PixelFormat::kI420;
  int error = y4m ? file.put(octets(video::y4m_header(film))) : 0;
  video::TestPattern pattern(film);
  for (std::uint64_t n = 0; n < frames && error == 0; ++n) {
    if (g_ended_by != 0) return files::failed(EINTR, name);
    if (y4m) error = file.put(octets(video::kFrameMark));
    if (error == 0) error = file.put(pattern.frame(n));
  }
  if (error != 0) return files::failed(error, name);
  return file.finish();
}

}  // namespace

cli::Outcome<std::string> make_film_file(const MakeCommand& c) {
  const auto sized = video::parse_size_and_rate(c.size + "@" + c.rate);
  if (!sized) {
    return cli::usage_error("--size " + c.size + " --rate " + c.rate +
                            ": is no size and rate; write --size 1280x720 --rate 35");
  }
  const std::string name = name_of(c);
  const auto raw = video::parse_raw_name(name);
  if (!raw && !name.ends_with(".y4m")) {
    return cli::usage_error(c.file + ": end the name in .y4m or .bgra");
  }
  const auto film = raw ? *raw
                        : video::make_film(video::PixelFormat::kI420, sized->width, sized->height,
                                           sized->rate_num, sized->rate_den);
  if (!film) return cli::usage_error(name + ": " + film.error().text());
  // Beyond the limit of its size a write is an error, rather than the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int which) { g_ended_by = which; };
  for (const int which : {SIGINT, SIGTERM, SIGHUP}) {
    // A signal that nohup has had ignored stays so.
    if (sigaction(which, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(which, &action, nullptr);
  }
  if (auto ok = write_film(name, *film, c.frames); !ok) {
    const int code = g_ended_by != 0 ? 128 + g_ended_by : cli::kExitFailure;
    return cli::failure(ok.error().text(), code);
  }
  return name;
}

}  // namespace weft::tv
