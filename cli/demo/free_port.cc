#include "cli/demo/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/unique_fd.h"

namespace weft::cli {

Result<int> FreePort(const std::string& address) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  socklen_t size = sizeof where;
  if (!fd || ::inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0) {
    return Fail(ErrnoError("find a free port at " + address, errno));
  }
  return ntohs(where.sin_port);
}

}  // namespace weft::cli
