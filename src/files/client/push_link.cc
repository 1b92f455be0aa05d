// Symbolic links on their way to a server; push.cc walks the tree.
#include <sys/stat.h>
#include <unistd.h>

#include "files/client/local.h"
#include "files/client/push.h"

namespace weft::files {

Outcome<bool> Push::is_link_there(const SymlinkRequest& request) {
  const auto now = ask(ReadLinkRequest{request.path});
  if (!now && !client_->alive()) return tl::unexpected(now.error());
  return now && now->target == request.target;
}

// Another link, or a file, of that name gives way; a folder does not. Returns whether the link is
// a new one.
Outcome<bool> Push::put_link(const SymlinkRequest& request) {
  const auto reply = ask(request);
  if (reply) return true;
  if (reply.error().error != EEXIST) return tl::unexpected(reply.error());
  const auto there = is_link_there(request);
  if (!there) return tl::unexpected(there.error());
  if (*there) return false;
  if (auto ok = replace_by_link(request); !ok) return tl::unexpected(ok.error());
  return true;
}

Outcome<bool> Push::would_put_link(const SymlinkRequest& request) {
  const auto there = is_link_there(request);
  if (!there || *there) return there ? Outcome<bool>(false) : tl::unexpected(there.error());
  const auto now = ask(StatRequest{request.path});
  if (now && S_ISDIR(now->attributes.mode)) {
    return tl::unexpected(explain(EISDIR, std::string(request.path.text)));
  }
  return true;
}

// In one step, by way of a second name: the old one is not lost if the new one cannot be made.
// Requests that are asked twice find what they did the first time.
Outcome<void> Push::replace_by_link(const SymlinkRequest& request) {
  const auto unique = unique_part_name();
  if (!unique) return tl::unexpected(unique.error());
  const std::size_t slash = request.path.text.rfind('/');
  const std::size_t folder = slash == std::string_view::npos ? 0 : slash + 1;
  const std::string between = std::string(request.path.text.substr(0, folder)) + *unique;
  const auto made = ask(SymlinkRequest{request.target, named(between)});
  if (!made && made.error().error != EEXIST) return tl::unexpected(made.error());
  const auto moved = ask(RenameRequest{0, between, request.path});
  if (moved) return {};
  if (moved.error().error == ENOENT) {
    const auto there = is_link_there(request);
    if (there && *there) return {};
  }
  if (client_->alive()) static_cast<void>(ask(RemoveRequest{0, named(between)}));
  return tl::unexpected(moved.error());
}

Outcome<void> Push::put_link_of(int folder, const char* name, const std::string& to) {
  char target[kPathBytes + 1];
  const ssize_t length = readlinkat(folder, name, target, sizeof target);
  if (length < 0) return failed(errno, to);
  const SymlinkRequest request{{target, static_cast<std::size_t>(length)}, named(to)};
  const auto changed = options_.dry_run ? would_put_link(request) : put_link(request);
  if (!changed) return tl::unexpected(changed.error());
  tell(*changed ? CopyStep::Kind::kLink : CopyStep::Kind::kSame, to);
  if (options_.durable) unflushed_.note_parent_of(to);
  ++totals_.links;
  return {};
}

}  // namespace weft::files
