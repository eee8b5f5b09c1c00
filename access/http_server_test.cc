#include "access/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <httplib.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "access/tls_server.h"
#include "common/unique_fd.h"
#include "controller/testing/temp_dir.h"
#include "proto/openssl_owners.h"
#include "proto/pki.h"
#include "proto/tls_texts.h"

namespace weft::access {
namespace {

using controller::testing::TempDir;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kHangs{60'000};  // of a handshake: longer than anything here takes
constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

/// A server with a page for who may read and one for anybody, behind a gate whose clock stands still.
class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpOptions options, TokenFiles tokens = {}) {
    options.host = "127.0.0.1";
    gate_ = std::make_unique<Gate>(GateOptions{.tls = !options.tls.empty(), .revoked = "", .tokens = std::move(tokens),
                                               .component = "test", .now = [] { return Seconds(0); },
                                               .count = [this](const char* why) {
                                                 const std::lock_guard lock(mutex_);
                                                 ++refused_[why];
                                               }});
    ASSERT_TRUE(gate_->Load());
    auto server = HttpServer::Start(options, {{"/page", {.answer = [] { return HttpAnswer{"text"}; }}},
                                              {"/open", {.answer = [] { return HttpAnswer{"ok"}; }, .open = true}}},
                                    gate_.get());
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
  }
  /// With an authority, a controller's, a viewer's, an operator's and an agent's certificate, and a viewer's token.
  void StartWithTls(HttpOptions options = {}) {
    folder_ = dir_.path() + "/pki";
    ASSERT_TRUE(rpc::MakeAuthority(folder_, "test"));
    Issue(rpc::Role::kController, "c");
    for (const auto role : {rpc::Role::kViewer, rpc::Role::kOperator, rpc::Role::kAgent}) Issue(role, "x");
    std::ofstream(dir_.path() + "/tokens") << kToken << "\n";
    ASSERT_EQ(::chmod((dir_.path() + "/tokens").c_str(), 0600), 0);
    options.tls = Files("controller-c");
    Start(options, {.viewer = dir_.path() + "/tokens", .operators = ""});
  }
  std::string Issue(rpc::Role role, const std::string& name) {
    const auto serial = rpc::IssueCertificate(folder_, {.role = role, .name = name, .addresses = {"127.0.0.1"}, .days = 1});
    EXPECT_TRUE(serial);
    return serial.value_or("");
  }
  rpc::TlsFiles Files(const std::string& who) const {
    return {folder_ + "/" + who + ".pem", folder_ + "/" + who + ".key", folder_ + "/ca.pem"};
  }
  int Status(const httplib::Result& result) const { return result ? result->status : -1; }
  /// Over TLS, with a certificate unless `who` is empty.
  std::unique_ptr<httplib::SSLClient> ClientOf(const std::string& who) const {
    using Client = httplib::SSLClient;
    const int port = server_->port();
    auto client = who.empty() ? std::make_unique<Client>("127.0.0.1", port)
                              : std::make_unique<Client>("127.0.0.1", port, Files(who).certificate, Files(who).key);
    client->set_ca_cert_path((folder_ + "/ca.pem").c_str());
    client->enable_server_certificate_verification(true);
    return client;
  }
  /// A client may know of it before it is counted.
  bool RefusesOnce(const char* why) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Refused(why) == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return Refused(why) == 1;
  }

  int Refused(const char* why) {
    const std::lock_guard lock(mutex_);
    return refused_[why];
  }

  const TempDir dir_;
  std::string folder_;
  std::mutex mutex_;
  std::map<std::string, int> refused_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, WithoutTlsEverybodyReadsAndNobodyChanges) {
  Start({});
  httplib::Client client("127.0.0.1", server_->port());
  const auto page = client.Get("/page");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->body, "text");
  EXPECT_EQ(Status(client.Head("/page")), 200);
  EXPECT_EQ(Status(client.Get("/nothing")), 404);
  EXPECT_EQ(Status(client.Post("/page")), 405);
  EXPECT_EQ(Status(client.Delete("/page")), 405);
  EXPECT_EQ(Status(client.Get("/page")), 200) << "a refusal ends its connection only";
}

TEST_F(HttpServerTest, RolesAreAskedForOverTls) {
  StartWithTls();
  EXPECT_EQ(Status(ClientOf("viewer-x")->Get("/page")), 200);
  EXPECT_EQ(Status(ClientOf("operator-x")->Get("/page")), 200);
  EXPECT_EQ(Status(ClientOf("")->Get("/open")), 200);
  const auto nobody = ClientOf("")->Get("/page");
  ASSERT_TRUE(nobody);
  EXPECT_EQ(nobody->status, 401);
  EXPECT_THAT(nobody->get_header_value("WWW-Authenticate"), HasSubstr("Basic realm="));
  EXPECT_EQ(Status(ClientOf("agent-x")->Get("/page")), 403);
  EXPECT_EQ(Status(ClientOf("viewer-x")->Post("/page")), 403) << "whoever changes something is an operator";
  EXPECT_EQ(Status(ClientOf("operator-x")->Post("/page")), 405) << "and finds nothing to change";
  EXPECT_EQ(Refused("identity"), 1);
  EXPECT_EQ(Refused("role"), 2);
  httplib::Client plain("127.0.0.1", server_->port());
  EXPECT_FALSE(plain.Get("/page"));
  EXPECT_TRUE(RefusesOnce("handshake"));
}

TEST_F(HttpServerTest, ATokenStandsForACertificate) {
  StartWithTls();
  const auto client = ClientOf("");
  client->set_bearer_token_auth(kToken);
  EXPECT_EQ(Status(client->Get("/page")), 200);
  EXPECT_EQ(Status(client->Post("/page")), 403);
  const auto browser = ClientOf("");
  browser->set_basic_auth("ann", kToken);
  EXPECT_EQ(Status(browser->Get("/page")), 200);
  const auto wrong = ClientOf("viewer-x");
  wrong->set_bearer_token_auth("0123456789abcdef0123456789abcdeX");
  EXPECT_EQ(Status(wrong->Get("/page")), 401) << "a token wins over a certificate";
  EXPECT_EQ(Refused("token"), 1);
}

TEST_F(HttpServerTest, CertificatesOfAnotherAuthorityAreRefused) {
  StartWithTls();
  const std::string mine = folder_;
  folder_ = dir_.path() + "/other";
  ASSERT_TRUE(rpc::MakeAuthority(folder_, "other"));
  Issue(rpc::Role::kViewer, "x");
  httplib::SSLClient client("127.0.0.1", server_->port(), Files("viewer-x").certificate, Files("viewer-x").key);
  client.enable_server_certificate_verification(false);
  EXPECT_EQ(Status(client.Get("/page")), -1);
  EXPECT_TRUE(RefusesOnce("handshake"));
}

TEST_F(HttpServerTest, BodiesAndLongRequestsAreRefused) {
  Start({});
  httplib::Client client("127.0.0.1", server_->port());
  EXPECT_EQ(Status(client.Post("/page", std::string(1 << 20, 'x'), "text/plain")), 413);
  EXPECT_EQ(Refused("size"), 1);
  // 40 headers of 1 KiB each.
  httplib::Headers headers;
  for (int i = 0; i < 40; ++i) headers.emplace("X-" + std::to_string(i), std::string(1024, 'x'));
  EXPECT_NE(Status(client.Get("/page", headers)), 200);
  EXPECT_EQ(Refused("size"), 2);
  EXPECT_NE(Status(client.Get("/page", {{"Range", "bytes=0-0,1-1"}})), 206) << "each part would be copied";
  EXPECT_EQ(Refused("size"), 3);
  EXPECT_EQ(Status(client.Get("/page")), 200);
}

// 200 requests that read at once (call_budget.h); the gate's clock stands still.
TEST_F(HttpServerTest, ACallerInALoopIsToldToWait) {
  Start({});
  httplib::Client client("127.0.0.1", server_->port());
  client.set_keep_alive(true);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(Status(client.Get("/page")), 200) << i;
  const auto late = client.Get("/page");
  ASSERT_TRUE(late);
  EXPECT_EQ(late->status, 429);
  EXPECT_EQ(late->get_header_value("Retry-After"), "1");
  EXPECT_EQ(Refused("rate"), 1);
}

/// A connection from `from` that keeps a thread, as the rest of its request, or of its handshake where there is TLS, never comes.
UniqueFd Hold(int port, const char* from, const std::string& begin = "GET") {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {.s_addr = ::inet_addr(from)}, .sin_zero = {}};
  sockaddr_in to = own;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = ::inet_addr("127.0.0.1");
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(fd.get(), begin.data(), begin.size(), MSG_NOSIGNAL), static_cast<ssize_t>(begin.size()));
  return fd;
}

/// Waits until one of them is closed by the other end; how many are then.
int ClosedOf(const std::vector<UniqueFd>& held) {
  std::vector<pollfd> entries;
  for (const UniqueFd& fd : held) entries.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
  return ::poll(entries.data(), entries.size(), 8'000);
}

TEST_F(HttpServerTest, AnAddressHasSoManyConnectionsAtOnce) {
  Start({.connections = 4, .connections_of_an_address = 2});
  std::vector<UniqueFd> held;
  for (int i = 0; i < 3; ++i) held.push_back(Hold(server_->port(), "127.0.0.2"));
  EXPECT_EQ(ClosedOf(held), 1);
  EXPECT_TRUE(RefusesOnce("connections"));
  EXPECT_EQ(Status(httplib::Client("127.0.0.1", server_->port()).Get("/page")), 200) << "another address has its own";
}

TEST_F(HttpServerTest, ThereAreSoManyConnectionsInAll) {
  Start({.connections = 2, .connections_of_an_address = 2});
  std::vector<UniqueFd> held;
  for (int i = 0; i < 2; ++i) held.push_back(Hold(server_->port(), "127.0.0.2"));
  held.push_back(Hold(server_->port(), "127.0.0.3"));
  EXPECT_EQ(ClosedOf(held), 1);
  EXPECT_TRUE(RefusesOnce("connections"));
}

// The first byte says that a TLS record begins, whose rest never comes; what is sent in plain text would be no handshake.
UniqueFd HoldHandshake(int port, const char* from) { return Hold(port, from, "\x16\x03\x01"); }

TEST_F(HttpServerTest, AHandshakeThatNeverEndsIsCutOff) {
  StartWithTls({.handshake_time = std::chrono::milliseconds(50)});
  ::testing::internal::CaptureStderr();
  std::vector<UniqueFd> held;
  held.push_back(HoldHandshake(server_->port(), "127.0.0.2"));
  EXPECT_EQ(ClosedOf(held), 1);
  EXPECT_TRUE(RefusesOnce("handshake"));
  const std::string place = "HTTP at 127.0.0.1:" + std::to_string(server_->port());
  server_.reset();  // all is logged
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(place + ": no TLS came about: the other end fell silent, expected a TLS handshake within 0.05 s"));
  EXPECT_THAT(said, HasSubstr("look at the caller's with openssl x509"));
}

TEST_F(HttpServerTest, AnAddressHasSoManyHandshakesAtOnce) {
  StartWithTls({.connections = 8, .connections_of_an_address = 8, .handshakes = 3, .handshakes_of_an_address = 2,
                .handshake_time = kHangs});
  ::testing::internal::CaptureStderr();
  std::vector<UniqueFd> held;
  for (int i = 0; i < 3; ++i) held.push_back(HoldHandshake(server_->port(), "127.0.0.2"));
  EXPECT_EQ(ClosedOf(held), 1);
  EXPECT_TRUE(RefusesOnce("handshakes"));
  EXPECT_EQ(Status(ClientOf("viewer-x")->Get("/page")), 200) << "another address has its own";
  EXPECT_EQ(Refused("connections"), 0);
  server_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("its address has 2 TLS handshakes that are not done yet at once, expected at most that: close some"));
}

TEST_F(HttpServerTest, ThereAreSoManyHandshakesInAll) {
  StartWithTls({.connections = 8, .connections_of_an_address = 8, .handshakes = 2, .handshakes_of_an_address = 2,
                .handshake_time = kHangs});
  std::vector<UniqueFd> held;
  for (int i = 0; i < 2; ++i) held.push_back(HoldHandshake(server_->port(), "127.0.0.2"));
  held.push_back(HoldHandshake(server_->port(), "127.0.0.3"));
  EXPECT_EQ(ClosedOf(held), 1);
  EXPECT_TRUE(RefusesOnce("handshakes"));
}

TEST_F(HttpServerTest, WhoHasEndedHisHandshakeLeavesItsPlace) {
  StartWithTls({.handshakes = 1, .handshakes_of_an_address = 1, .handshake_time = kHangs});
  const auto first = ClientOf("viewer-x"), second = ClientOf("viewer-x");
  for (const auto& client : {first.get(), second.get()}) {
    client->set_keep_alive(true);
    EXPECT_EQ(Status(client->Get("/page")), 200);
  }
  EXPECT_EQ(Status(first->Get("/page")), 200) << "its connection is there while there is another handshake";
  EXPECT_EQ(Refused("handshakes"), 0);
}

// Each message says what was asked, what was expected, and what to do now.
TEST_F(HttpServerTest, AnswersSayWhatWasExpectedAndWhatToDo) {
  StartWithTls();
  const auto told = [](const httplib::Result& result) { return result ? result->body : ""; };
  const auto ann = ClientOf("operator-x");
  EXPECT_EQ(told(ann->Get("/nothing")), "GET: no such page, expected one of /open, /page\n");
  EXPECT_EQ(told(ann->Delete("/page")), "DELETE changes nothing here, expected GET or HEAD: to change something use weft\n");
  EXPECT_EQ(told(ann->Post("/page", "text", "text/plain")),
            "POST: a request with a body, expected none: ask with GET, and change things with weft\n");
  EXPECT_EQ(told(ann->Get("/page", {{"Range", "bytes=0-0,1-1"}})),
            "GET: a request for 2 ranges, expected at most one: ask for the whole page\n");
  EXPECT_THAT(told(ClientOf("")->Get("/page")),
              HasSubstr("no certificate was shown, expected one with a role: show a certificate of a viewer, submitter or operator"));
  EXPECT_THAT(told(ClientOf("agent-x")->Get("/page")), HasSubstr("expected a viewer, submitter or operator: show another certificate"));
}

TEST_F(HttpServerTest, AnAddressThatIsTakenIsNamed) {
  Start({});
  const auto second = HttpServer::Start({.host = "127.0.0.1", .port = server_->port()}, {}, gate_.get());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(second.error().message(), "listen at 127.0.0.1:" + std::to_string(server_->port()) +
                                          " for HTTP: the address cannot be used, expected one of this host's that no other program "
                                          "listens at: see which does with ss -ltnp, or configure another");
}

/// A certificate of its own for a key that OpenSSL's default level does not take, and the key; PEM.
rpc::TlsTexts WeakPair() {
  const rpc::KeyOwner key(EVP_RSA_gen(1024));
  const rpc::CertificateOwner certificate(X509_new());
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const auto text = [](const rpc::BioOwner& bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return std::string(data, static_cast<size_t>(size));
  };
  const rpc::BioOwner of_certificate(BIO_new(BIO_s_mem())), of_key(BIO_new(BIO_s_mem()));
  EXPECT_EQ(PEM_write_bio_X509(of_certificate.get(), certificate.get()), 1);
  EXPECT_EQ(PEM_write_bio_PrivateKey(of_key.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  return {.certificate = text(of_certificate), .key = text(of_key), .authority = text(of_certificate)};
}

TEST_F(HttpServerTest, ACertificateThatOpenSslDoesNotTakeIsNamed) {
  const rpc::TlsTexts weak = WeakPair();
  const rpc::TlsFiles files{dir_.path() + "/weak.pem", dir_.path() + "/weak.key", dir_.path() + "/weak.pem"};
  std::ofstream(files.certificate) << weak.certificate;
  std::ofstream(files.key) << weak.key;
  const auto server = TlsServer::Make(files);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(server.error().message(), "TLS of HTTP: certificate \"" + files.certificate +
                                          "\" cannot be used: ee key too small, expected PEM with keys as strong as OpenSSL asks for: "
                                          "issue it again with weft pki");
}

TEST_F(HttpServerTest, NewCertificatesAreTakenWhenTheyFitTogether) {
  folder_ = dir_.path() + "/pki";
  ASSERT_TRUE(rpc::MakeAuthority(folder_, "test"));
  Issue(rpc::Role::kController, "c");
  const auto server = TlsServer::Make(Files("controller-c"));
  ASSERT_TRUE(server);
  const auto shown = [&] {
    const auto connection = (*server)->Connection();
    const ASN1_INTEGER* const serial = X509_get0_serialNumber(SSL_get_certificate(connection.get()));
    return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
                       static_cast<size_t>(ASN1_STRING_length(serial)));
  };
  EXPECT_TRUE((*server)->IsForServers());
  const auto first = shown();
  const std::string old_key = folder_ + "/old.key", new_key = folder_ + "/new.key";
  const rpc::TlsFiles files = Files("controller-c");
  std::filesystem::copy_file(files.key, old_key);
  Issue(rpc::Role::kController, "c");
  std::filesystem::rename(files.key, new_key);
  std::filesystem::rename(old_key, files.key);
  EXPECT_EQ(shown(), first) << "a new certificate with the old key: as before";
  std::filesystem::rename(new_key, files.key);
  EXPECT_NE(shown(), first) << "both are new";
  const auto second = shown();
  ASSERT_TRUE(std::filesystem::remove(files.certificate));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(shown(), second) << "a file that is gone changes nothing";
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("stay as they were, expected a certificate, its key and an authority: mend the files"));
  EXPECT_THAT(said, HasSubstr("certificate=" + files.certificate));
}

}  // namespace
}  // namespace weft::access
