#include "access/wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "proto/openssl_owners.h"

namespace weft::access {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // after which a wait looks whether the server ends

int SizeOf(size_t size) { return static_cast<int>(std::min<size_t>(size, 1 << 20)); }

}  // namespace

void TlsFree::operator()(ssl_st* object) const { SSL_free(object); }
void TlsFree::operator()(ssl_ctx_st* object) const { SSL_CTX_free(object); }

Wire::Wire(UniqueFd socket, std::unique_ptr<ssl_st, TlsFree> tls, const std::atomic<bool>* stop)
    : socket_(std::move(socket)), tls_(std::move(tls)), stop_(stop) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  const int yes = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);  // an answer's last part waits for no acknowledgement
  if (tls_) SSL_set_fd(tls_.get(), socket_.get());
}

Wire::~Wire() {
  if (tls_ && !broken_ && SSL_is_init_finished(tls_.get()) != 0) SSL_shutdown(tls_.get());
  ERR_clear_error();  // the queue is the thread's
}

bool Wire::Wait(short events, Time until) const {
  while (!*stop_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{.fd = socket_.get(), .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, kSlice).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

bool Wire::WaitReadable(Time until) const { return (tls_ && SSL_has_pending(tls_.get()) != 0) || Wait(POLLIN, until); }
bool Wire::WaitWritable(Time until) const { return Wait(POLLOUT, until); }

bool Wire::Again(int result, Time until) {
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ: return Wait(POLLIN, until);
    case SSL_ERROR_WANT_WRITE: return Wait(POLLOUT, until);
    case SSL_ERROR_ZERO_RETURN: return false;
    default: broken_ = true; return false;
  }
}

Status Wire::Handshake(Time until) {
  if (!tls_) return Ok();
  int done = 0;
  do {
    ERR_clear_error();
    done = SSL_accept(tls_.get());
  } while (done <= 0 && Again(done, until));
  if (done == 1) return Ok();
  broken_ = true;
  const long verdict = SSL_get_verify_result(tls_.get());
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  if (verdict != X509_V_OK) {
    return Fail(Code::kUnauthenticated, std::string("its certificate is refused: ") + X509_verify_cert_error_string(verdict));
  }
  return Fail(Code::kUnauthenticated,
              std::string("no TLS came about: ") + (reason == nullptr ? "the other end fell silent" : reason));
}

std::string Wire::PeerCertificate() const {
  if (!tls_) return "";
  const rpc::CertificateOwner certificate(SSL_get1_peer_certificate(tls_.get()));
  if (!certificate) return "";
  const rpc::BioOwner out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

ssize_t Wire::Read(char* to, size_t size, Time until) {
  for (;;) {
    if (tls_) {
      ERR_clear_error();
      const int got = SSL_read(tls_.get(), to, SizeOf(size));
      if (got > 0) return got;
      if (!Again(got, until)) return SSL_get_shutdown(tls_.get()) & SSL_RECEIVED_SHUTDOWN ? 0 : -1;
    } else {
      const ssize_t got = ::recv(socket_.get(), to, size, 0);
      if (got >= 0) return got;
      if (errno != EINTR && ((errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLIN, until))) return -1;
    }
  }
}

ssize_t Wire::Write(const char* from, size_t size, Time until) {
  for (;;) {
    if (tls_) {
      ERR_clear_error();
      const int put = SSL_write(tls_.get(), from, SizeOf(size));
      if (put > 0) return put;
      if (!Again(put, until)) return -1;
    } else {
      const ssize_t put = ::send(socket_.get(), from, size, MSG_NOSIGNAL);
      if (put >= 0) return put;
      if (errno != EINTR && ((errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLOUT, until))) return -1;
    }
  }
}

void Wire::Linger(size_t most, Time until) {
  if (tls_ && !broken_) SSL_shutdown(tls_.get());
  ::shutdown(socket_.get(), SHUT_WR);
  char piece[4096];
  for (size_t read = 0; read < most && Wait(POLLIN, until);) {
    const ssize_t got = ::recv(socket_.get(), piece, sizeof piece, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) break;
    read += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  broken_ = true;
}

}  // namespace weft::access
