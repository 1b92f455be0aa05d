// Symbolic links on their way to a server; push.cc walks the tree.
#include <sys/stat.h>
#include <unistd.h>

#include "files/client/local.h"
#include "files/client/push.h"

namespace weft::files {
namespace {

Outcome<bool> is_link_there(ServerLink& server, const SymlinkRequest& request) {
  const auto now = server.ask(ReadLinkRequest{request.path});
  if (!now && !server.alive()) return tl::unexpected(now.error());
  return now && now->target == request.target;
}

// In one step, by way of a second name: the old one is not lost if the new one cannot be made.
// Requests that are asked twice find what they did the first time.
Outcome<void> replace_by_link(ServerLink& server, const SymlinkRequest& request) {
  const auto unique = unique_part_name();
  if (!unique) return tl::unexpected(unique.error());
  const std::size_t slash = request.path.text.rfind('/');
  const std::size_t folder = slash == std::string_view::npos ? 0 : slash + 1;
  const std::string between = std::string(request.path.text.substr(0, folder)) + *unique;
  const auto made =
      server.ask(SymlinkRequest{request.target, PathName{between, request.path.links}});
  if (!made && made.error().error != EEXIST) return tl::unexpected(made.error());
  const auto moved = server.ask(RenameRequest{0, between, request.path});
  if (moved) return {};
  if (moved.error().error == ENOENT) {
    const auto there = is_link_there(server, request);
    if (there && *there) return {};
  }
  if (server.alive())
    static_cast<void>(server.ask(RemoveRequest{0, PathName{between, request.path.links}}));
  return tl::unexpected(moved.error());
}

// Another link, or a file, of that name gives way; a folder does not. Returns whether the link is
// a new one.
Outcome<bool> put_link(ServerLink& server, const SymlinkRequest& request) {
  const auto reply = server.ask(request);
  if (reply) return true;
  if (reply.error().error != EEXIST) return tl::unexpected(reply.error());
  const auto there = is_link_there(server, request);
  if (!there) return tl::unexpected(there.error());
  if (*there) return false;
  if (auto ok = replace_by_link(server, request); !ok) return tl::unexpected(ok.error());
  return true;
}

Outcome<bool> would_put_link(ServerLink& server, const SymlinkRequest& request) {
  const auto there = is_link_there(server, request);
  if (!there || *there) return there ? Outcome<bool>(false) : tl::unexpected(there.error());
  const auto now = server.ask(StatRequest{request.path});
  if (now && S_ISDIR(now->attributes.mode)) {
    return tl::unexpected(explain(EISDIR, std::string(request.path.text)));
  }
  return true;
}

}  // namespace

Outcome<void> Push::put_link_of(int folder, const char* name, const std::string& to) {
  char target[kPathBytes + 1];
  const ssize_t length = readlinkat(folder, name, target, sizeof target);
  if (length < 0) return failed(errno, to);
  const SymlinkRequest request{{target, static_cast<std::size_t>(length)}, named(to)};
  const auto changed = options_.dry_run ? would_put_link(link_, request) : put_link(link_, request);
  if (!changed) return tl::unexpected(changed.error());
  if (options_.durable) unflushed_.note_parent_of(to);
  ++totals_.links;
  // One that would be made has no attributes yet.
  const bool finishes = options_.archive && !(options_.dry_run && *changed);
  const auto updated = finishes ? finish_link(folder, name, to) : Outcome<bool>(false);
  if (!updated) return tl::unexpected(updated.error());
  const auto kind = *updated ? CopyStep::Kind::kChanged : CopyStep::Kind::kSame;
  tell(*changed ? CopyStep::Kind::kLink : kind, to);
  return {};
}

}  // namespace weft::files
