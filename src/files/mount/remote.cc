#include "files/mount/remote.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace weft::mount {

using files::Answer;
using files::Attributes;
using files::failed;
using files::Op;
using files::Outcome;

namespace {

// More than any file system has in one folder, and less than what fills memory.
constexpr std::uint64_t kEntriesMax = 16U << 20U;
// Errors of Linux are below this; the kernel takes no others from a file system.
constexpr std::uint32_t kErrnoEnd = 512;

int server_error(std::uint32_t error) { return error < kErrnoEnd ? static_cast<int>(error) : EIO; }

}  // namespace

int Remote::local_error(const files::Failed& why) {
  const bool name = why.error == ENAMETOOLONG;
  return name ? ENAMETOOLONG : EIO;
}

std::string Remote::name_of(const std::string& path) const {
  const std::size_t start = std::min(path.find_first_not_of('/'), path.size());
  std::string name = prefix_;
  if (!name.empty() && name.back() != '/' && start < path.size()) name += '/';
  return name + path.substr(start);
}

Outcome<void> Remote::connect() {
  auto client = files::Client::connect(server_);
  if (!client) return tl::unexpected(client.error());
  memory_ = files::Registered();  // before the domain that it belongs to
  client_ = std::move(*client);
  auto memory = files::Registered::create(
      client_->pd(), kCallBytes + blocks_.size() * std::size_t{kBlockBytes},
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (!memory) {
    client_.reset();
    return tl::unexpected(memory.error());
  }
  memory_ = std::move(*memory);
  ++connection_;
  key_ = {};
  if (client_->has_objects()) {
    // Files that are open here outlive this connection for a while.
    if (const auto kept = client_->call(files::KeepRequest())) key_ = kept->key;
  }
  for (Block& block : blocks_) block = Block();
  for (auto& [id, file] : files_) file.ahead = 0;
  return {};
}

Outcome<void> Remote::ready() {
  if (client_ != nullptr && client_->alive()) return {};
  return connect();
}

// A reply to a block's request, or one that nobody waits for any more.
Outcome<void> Remote::take(const Answer& answer) {
  if (answer.tag >= blocks_.size() && answer.tag < next_call_) return {};
  const bool ours = answer.op == Op::kRead && answer.tag < blocks_.size() &&
                    blocks_[answer.tag].state == Block::State::kAsked;
  files::ReadReply reply;
  if (ours && answer.error == 0) {
    const auto found = client_->read<files::ReadReply>(answer);
    if (!found) return tl::unexpected(found.error());
    reply = *found;
  }
  if (!ours) return client_->broken("the server answered something else");
  Block& block = blocks_[answer.tag];
  block.state = block.dropped ? Block::State::kFree : Block::State::kHere;
  block.error = server_error(answer.error);
  block.got = std::min(reply.bytes, block.want);
  return {};
}

// Until a request more may be sent.
int Remote::make_room() {
  while (client_->outstanding() >= client_->credits()) {
    const auto answer = client_->wait();
    if (!answer) return local_error(answer.error());
    if (auto ok = take(*answer); !ok) return EIO;
  }
  return 0;
}

// A wait that a signal has ended leaves a reply that is still to come: each call has its own tag.
Outcome<Answer> Remote::answer_to(Op op, std::uint64_t tag) {
  for (;;) {
    auto answer = client_->wait();
    if (!answer) return answer;
    if (answer->tag == tag && answer->op == op) {
      answer->error = static_cast<std::uint32_t>(server_error(answer->error));
      return answer;
    }
    if (auto ok = take(*answer); !ok) return tl::unexpected(ok.error());
  }
}

int Remote::stat(const std::string& path, Attributes& out) {
  const std::string name = name_of(path);
  files::StatReply reply;
  const int error = ask(files::StatRequest{{name}}, reply);
  if (error == 0) out = reply.attributes;
  return error;
}

int Remote::stat_open(std::uint64_t id, Attributes& out) {
  const auto at = files_.find(id);
  if (at == files_.end()) return EBADF;
  files::SetReply reply;
  const int error = ask_for(at->second, files::SetRequest(), reply);  // changes nothing
  if (error == 0) out = reply.attributes;
  return error;
}

int Remote::usage(const std::string& path, files::Usage& out) {
  const std::string name = name_of(path);
  files::StatFsReply reply;
  const int error = ask(files::StatFsRequest{{name}}, reply);
  if (error == 0) out = reply.usage;
  return error;
}

int Remote::read_link(const std::string& path, std::string& target) {
  const std::string name = name_of(path);
  files::ReadLinkReply reply;
  const int error = ask(files::ReadLinkRequest{{name}}, reply);
  if (error == 0) target.assign(reply.target);
  return error;
}

int Remote::list(const std::string& path, const EntryFunction& entry) {
  const std::string name = name_of(path);
  std::vector<std::uint8_t> page;
  std::uint64_t cursor = 0;
  std::uint64_t entries = 0;
  for (int tries = 0;;) {
    const auto answer = call_again([&] {
      const std::uint64_t address = files::address_of(memory_.data());
      const files::RemoteMemory memory{address, memory_.rkey(), kListBytes};
      return files::ListRequest{cursor, memory, {name}, true};
    });
    files::ListReply reply;
    const int error = take_reply(answer, reply);
    if (error == EAGAIN && ++tries < kListTries) {
      std::this_thread::sleep_for(kListPause);
      continue;
    }
    if (error != 0) return error;
    tries = 0;
    // The server can write into its part of our memory at any time.
    page.assign(memory_.data(), memory_.data() + std::min(reply.bytes, kListBytes));
    std::span<const std::uint8_t> rest(page);
    while (const auto found = files::decode_entry(rest)) {
      const bool safe = found->name.find('/') == std::string_view::npos &&
                        found->name.find('\0') == std::string_view::npos && found->name != "." &&
                        found->name != "..";
      if (++entries > kEntriesMax) return EOVERFLOW;
      if (safe) entry(std::string(found->name), found->attributes);
    }
    if (!rest.empty()) return EIO;  // broken, and perhaps without end
    if (reply.cursor == 0) return 0;
    if (page.empty() || reply.cursor == cursor) return EIO;  // it would never end
    cursor = reply.cursor;
  }
}

int Remote::rename(const std::string& from, const std::string& to, bool keep) {
  const std::string old_name = name_of(from);
  const std::string new_name = name_of(to);
  const files::RenameRequest request{keep ? files::kRenameKeep : 0U, old_name, {new_name}};
  const int error = change(from, request, ENOENT);
  if (error != 0) return error;
  changes_.note_renamed(from, to);
  changes_.note_name(to, client_->verifier());
  return 0;
}

int Remote::remove(const std::string& path, bool folder) {
  const std::string name = name_of(path);
  return change(path, files::RemoveRequest{folder ? files::kRemoveDirectory : 0U, {name}}, ENOENT);
}

int Remote::make_directory(const std::string& path, std::uint32_t mode) {
  const std::string name = name_of(path);
  return change(path, files::MakeDirectoryRequest{mode, {name}}, EEXIST);
}

int Remote::symlink(const std::string& target, const std::string& path) {
  const std::string name = name_of(path);
  return change(path, files::SymlinkRequest{target, {name}}, EEXIST);
}

int Remote::set(const std::string& path, std::uint64_t id, std::uint32_t what,
                const Attributes& to) {
  const auto at = files_.find(id);
  File* const file = at != files_.end() && at->second.edited ? &at->second : nullptr;
  if (file == nullptr && path.empty()) return EBADF;
  if ((what & files::kSetSize) != 0 && !files::offset_is_legal(to.size)) return EFBIG;
  const std::string name = name_of(path);
  const files::SetRequest request{0, what, to.mode, to.size, to.mtime_ns, {name}};
  files::SetReply reply;
  const int error = file != nullptr ? ask_for(*file, request, reply) : ask(request, reply);
  if (error == 0) changes_.note(reply.attributes.file_id);
  return error;
}

int Remote::edit(const std::string& path, std::uint32_t mode, std::uint32_t flags,
                 std::uint64_t& id) {
  const std::string name = name_of(path);
  files::EditRequest request{mode, flags, {name}};
  files::EditReply reply;
  bool repeated = false;
  const auto answer = call_again([&] { return request; }, &repeated);
  int error = take_reply(answer, reply);
  if (repeated && error == EEXIST) {  // made by the attempt whose reply was lost
    request.flags &= ~std::uint32_t{files::kEditExclusive};
    error = ask(request, reply);
  }
  if (error != 0) return error;
  File file;
  file.path = path;
  file.renames = changes_.renames();
  file.edited = true;
  file.size_known = false;
  file.state = reply.state;
  file.handle = reply.handle;
  file.connection = connection_;
  file.key = key_;
  if ((flags & files::kEditCreate) != 0) changes_.note_name(path, client_->verifier());
  if ((flags & files::kEditTruncate) != 0) changes_.note(file.state.attributes.file_id);
  file.changes = changes_.of(file.state.attributes.file_id);
  file.losses = changes_.files().losses(file.state.attributes.file_id);
  id = next_file_++;
  files_.emplace(id, std::move(file));
  return 0;
}

std::int64_t Remote::write(std::uint64_t id, const std::uint8_t* from, std::uint32_t bytes,
                           std::uint64_t offset) {
  const auto at = files_.find(id);
  if (at == files_.end() || !at->second.edited) return -EBADF;
  if (!files::offset_is_legal(offset + bytes)) return -EFBIG;
  File& file = at->second;
  std::uint32_t done = 0;
  // Nobody knows what became of an attempt whose reply was lost, unless another one succeeds.
  const auto give_up = [&](int error) {
    changes_.files().note(file.state.attributes.file_id, Unsynced<std::uint64_t>::kMixed);
    return -error;
  };
  for (int tries = 0; done < bytes;) {
    if (const int error = ready_with(file)) return tries == 0 ? -error : give_up(error);
    files::WriteRequest request;
    request.handle = file.handle;
    request.offset = offset + done;
    std::uint8_t* const room = memory_.data() + kListBytes;
    request.memory = {files::address_of(room), memory_.rkey(),
                      std::min({bytes - done, kWriteBytes, client_->max_io()})};
    std::memcpy(room, from + done, request.memory.bytes);
    const auto answer = call(request);
    // Part of it may be in the file, whatever became of the reply.
    changes_.note(file.state.attributes.file_id);
    files::WriteReply reply;
    const int error = take_reply(answer, reply);
    if (error == 0) changes_.files().note(file.state.attributes.file_id, reply.verifier);
    if (error == 0 && reply.bytes == 0) return -EIO;
    if (error == 0) {
      done += std::min(reply.bytes, request.memory.bytes);
    } else if (answer || !is_lost() || tries++ != 0) {
      return give_up(error);
    }
  }
  return done;
}

int Remote::sync(std::uint64_t id) {
  const auto at = files_.find(id);
  if (at == files_.end()) return EBADF;
  File& file = at->second;
  if (const int error = ready_with(file)) return error == ESTALE ? EIO : error;
  // One that was empty when it was opened for reading has no handle at the server.
  if (file.handle == 0) return sync_empty(file);
  files::SyncReply reply;
  const std::uint64_t file_id = file.state.attributes.file_id;
  const auto sent = changes_.files().of(file_id);
  const int error = ask_for(file, files::SyncRequest(), reply);
  // EROFS: nobody has changed anything, unless that was before the server became read-only.
  if (error != 0 && error != EROFS) return error == ESTALE ? EIO : error;
  // The server may have restarted since the data was sent, and lost it, whatever it says now. Each
  // that has the file open hears of that once.
  changes_.files().settle(file_id, sent, reply.verifier);
  const std::uint64_t losses = changes_.files().losses(file_id);
  return std::exchange(file.losses, losses) == losses ? 0 : EIO;
}

int Remote::sync_folder(const std::string& path) {
  const auto sent = changes_.folders().of(path);
  const std::uint64_t losses = changes_.folders().losses(path);
  const int error = set(path, 0, files::kSetFlush, {});
  if (error != 0 && error != EROFS) return error;
  changes_.folders().settle(path, sent, error == 0 ? client_->verifier() : 0);
  return changes_.folders().losses(path) == losses ? 0 : EIO;
}

int Remote::sync_empty(const File& file) {
  std::uint64_t id = 0;
  const int error = edit(changes_.name_now(file.path, file.renames), 0, 0, id);
  if (error != 0) return error == EROFS || error == ENOENT ? 0 : error;
  const int result = sync(id);
  this->close(id);
  return result;
}

int Remote::ready_with(File& file) {
  if (auto ok = ready(); !ok) return local_error(ok.error());
  return file.connection == connection_ ? 0 : reopen(file);
}

int Remote::reopen(File& file) {
  const bool first = file.connection == 0;
  if (!first && reopen_kept(file)) return 0;
  const std::uint64_t renames = changes_.renames();
  file.path = changes_.name_now(file.path, file.renames);
  file.renames = renames;
  const std::string name = name_of(file.path);
  files::FileState found;
  std::uint64_t handle = 0;
  int error = 0;
  if (file.edited) {
    files::EditReply reply;
    error = ask(files::EditRequest{0, 0, {name}}, reply);
    found = reply.state;
    handle = reply.handle;
  } else {
    files::OpenReply reply;
    error = ask(files::OpenRequest{{}, {name}}, reply);
    found = reply.state;
    handle = reply.handle;
  }
  if (error != 0) return !first && error == ENOENT ? ESTALE : error;
  const bool same =
      file.size_known ? files::same_token(file.state, found) : found.object == file.state.object;
  if (!first && !same) {
    close_handle(handle);
    return ESTALE;
  }
  file.state = found;
  if (first) {
    file.changes = changes_.of(file.state.attributes.file_id);
    file.losses = changes_.files().losses(file.state.attributes.file_id);
  }
  file.handle = handle;
  file.connection = connection_;
  file.key = key_;
  return 0;
}

// The very file of the connection that was lost, whatever has become of its name. Readers see what
// was written to it meanwhile, as on a local file system.
bool Remote::reopen_kept(File& file) {
  if (file.handle == 0 || file.key == files::KeepKey{} || !client_->has_objects()) return false;
  files::ReopenRequest::Reply reply;
  if (ask(files::ReopenRequest{file.key, file.handle}, reply) != 0) return false;
  if (reply.state.object != file.state.object) {
    close_handle(reply.handle);
    return false;
  }
  if (file.size_known && !files::same_token(file.state, reply.state)) file.size_known = false;
  file.state = reply.state;
  file.handle = reply.handle;
  file.connection = connection_;
  file.key = key_;
  return true;
}

int Remote::open(const std::string& path, std::uint64_t& id, files::FileState& state) {
  File file;
  file.path = path;
  file.renames = changes_.renames();
  if (const int error = reopen(file)) return error;
  state = file.state;
  id = next_file_++;
  files_.emplace(id, std::move(file));
  return 0;
}

void Remote::close(std::uint64_t id) {
  const auto at = files_.find(id);
  if (at == files_.end()) return;
  forget_blocks(id);
  const File& file = at->second;
  if (file.connection == connection_) close_handle(file.handle);
  files_.erase(at);
}

// Nobody waits for the reply; a connection that fails here is made again by the next call.
void Remote::close_handle(std::uint64_t handle) {
  if (handle == 0 || client_ == nullptr || !client_->alive() || make_room() != 0) return;
  static_cast<void>(client_->post(files::CloseRequest{handle}, next_call_++));
}

}  // namespace weft::mount
