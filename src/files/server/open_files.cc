#include "files/server/open_files.h"

#include <sys/stat.h>

#include <cassert>
#include <utility>

#include "files/protocol/file_attributes.h"

namespace weft::files {
namespace {

// The last descriptor of a file without a name frees its room.
template <class File>
class Disposal final : public Background::Job {
 public:
  explicit Disposal(File file) : file_(std::move(file)) {}
  void work() noexcept override { file_ = File(); }
  void done() override {}

 private:
  File file_;
};

bool frees_much_room(int fd) {
  struct stat s {};
  return fstat(fd, &s) == 0 && s.st_nlink == 0 && bytes_on_disk(s) > kMuchBytes;
}

void dispose(Background& background, OpenFile* file) {
  std::unique_ptr<OpenFile> last(file);
  if (file->draft != nullptr) file->draft->drop();
  if (!frees_much_room(file->get())) return;
  background.run(std::make_unique<Disposal<std::unique_ptr<OpenFile>>>(std::move(last)));
}

}  // namespace

void dispose(Background& disposal, os::Fd file) {
  if (!frees_much_room(file.get())) return;
  disposal.run(std::make_unique<Disposal<os::Fd>>(std::move(file)));
}

bool takes_much(int fd) {
  struct stat s {};
  return fstat(fd, &s) == 0 && bytes_on_disk(s) > kMuchBytes;
}

OpenFiles::File OpenFiles::make() const {
  return {new OpenFile, [&disposal = disposal_](OpenFile* file) { dispose(disposal, file); }};
}

std::uint64_t OpenFiles::add(File file) {
  assert(file != nullptr && size() < most_);
  files_.emplace(next_handle_, std::move(file));
  return next_handle_++;
}

OpenFiles::File OpenFiles::find(std::uint64_t handle) const {
  const auto at = files_.find(handle);
  return at == files_.end() ? nullptr : at->second;
}

std::map<std::uint64_t, OpenFiles::File> OpenFiles::take_whole() {
  std::erase_if(files_, [](const auto& one) { return one.second->draft != nullptr; });
  return std::exchange(files_, {});
}

OpenFiles::File OpenFiles::take(std::uint64_t handle) {
  const auto at = files_.find(handle);
  if (at == files_.end()) return nullptr;
  File file = std::move(at->second);
  files_.erase(at);
  return file;
}

}  // namespace weft::files
