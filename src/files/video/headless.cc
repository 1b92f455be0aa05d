#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "files/client/local.h"
#include "files/protocol/outcome.h"
#include "files/video/pattern.h"
#include "files/video/screen.h"
#include "os/fd.h"
#include "os/report_of_close.h"

namespace weft::video {
namespace {

class Headless final : public Screen {
 public:
  [[nodiscard]] files::Outcome<void> open(const std::vector<Film>& films,
                                          const HeadlessOptions& options) {
    for (std::size_t i = 0; i < films.size(); ++i) {
      if (options.check) patterns_.emplace_back(films[i]);
      if (options.dump_prefix.empty()) continue;
      const std::string name = options.dump_prefix + std::to_string(i);
      files_.emplace_back(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!files_.back()) return files::failed(errno, name);
    }
    return {};
  }

  [[nodiscard]] files::Outcome<void> show(std::size_t film, const Player::Frame& frame) override {
    if (!patterns_.empty()) {
      const auto want = patterns_[film].frame(frame.number);
      if (!std::equal(want.begin(), want.end(), frame.pixels.begin(), frame.pixels.end())) {
        const auto at = std::mismatch(want.begin(), want.end(), frame.pixels.begin()).first;
        return files::failed(EBADMSG, "film " + std::to_string(film),
                             "frame " + std::to_string(frame.number) + " differs at octet " +
                                 std::to_string(at - want.begin()));
      }
    }
    if (!files_.empty()) {
      const int error =
          files::write_fully(files_[film].get(), frame.pixels.data(), frame.pixels.size());
      if (error != 0) return files::failed(error, "cannot write film " + std::to_string(film));
    }
    return {};
  }

  [[nodiscard]] files::Outcome<void> finish() override {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const int error = os::report_of_close(files_[i].get());
      if (error != 0) return files::failed(error, "cannot write film " + std::to_string(i));
    }
    return {};
  }

 private:
  std::vector<TestPattern> patterns_;
  std::vector<os::Fd> files_;
};

}  // namespace

files::Outcome<std::unique_ptr<Screen>> open_headless(const std::vector<Film>& films,
                                                      const HeadlessOptions& options) {
  auto screen = std::make_unique<Headless>();
  if (auto ok = screen->open(films, options); !ok) return tl::unexpected(ok.error());
  return screen;
}

}  // namespace weft::video
