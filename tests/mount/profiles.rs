//! Profiles of each kind sign the requests of a mount: SSO, login, processes, roles and web identities. Their
//! services are servers on loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3mount_testkit::{Builder, TestS3, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::world::{BUCKET, KIB, World, check_file, s3mount, wait_for};

/// The files of `~/.aws` name the cached tokens by hashes: the SHA-1 of the SSO session `corp`, that of the start
/// URL, and the SHA-256 of the login session.
const SSO_TOKEN: &str = ".aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json";
const LEGACY_TOKEN: &str = ".aws/sso/cache/a51746d4aa793ae07b25e90c3a5db96fc7832bd7.json";
const LOGIN_TOKEN: &str =
    ".aws/login/cache/6eeec053fe13079aaf7fd81065ec5ecbdb93674f20700e51842d0c769b240c8a.json";

const CONFIG: &str = "\
[profile sso]
sso_session = corp
sso_account_id = 111122223333
sso_role_name = Reader
[sso-session corp]
sso_region = eu-west-1
sso_start_url = https://corp.awsapps.com/start
[profile legacy]
sso_start_url = https://corp.awsapps.com/start
sso_region = eu-west-1
sso_account_id = 111122223333
sso_role_name = Reader
[profile login]
login_session = arn:aws:iam::111122223333:user/me
[profile process]
credential_process = PROCESS
[profile keys]
aws_access_key_id = BASE
aws_secret_access_key = secret
[profile first]
role_arn = arn:aws:iam::111122223333:role/first
source_profile = keys
[profile second]
role_arn = arn:aws:iam::111122223333:role/second
source_profile = first
[profile by-sso]
role_arn = arn:aws:iam::111122223333:role/by-sso
source_profile = sso
[profile by-environment]
role_arn = arn:aws:iam::111122223333:role/by-environment
credential_source = Environment
[profile web]
role_arn = arn:aws:iam::111122223333:role/web
web_identity_token_file = HOME/token
[profile mfa]
role_arn = arn:aws:iam::111122223333:role/first
source_profile = keys
mfa_serial = arn:aws:iam::111122223333:mfa/me
";

/// What the services have been asked, and the access key that they hand out.
#[derive(Default)]
struct Asked {
    key: String,
    requests: Vec<String>,
    /// The status and the code with which STS refuses, if it does.
    refusal: Option<(&'static str, &'static str)>,
}

/// A home with profiles, and the services that its profiles name.
struct Home {
    folder: TempDir,
    url: String,
    asked: Arc<Mutex<Asked>>,
}

impl Home {
    fn new(key: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let asked = Arc::new(Mutex::new(Asked { key: key.to_owned(), ..Asked::default() }));
        let url = serve(asked.clone());
        let home = Self { folder, url, asked };
        let path = home.folder.path().display().to_string();
        let process = home.folder.path().join("process");
        home.write(
            ".aws/config",
            &CONFIG.replace("PROCESS", process.to_str().expect("text")).replace("HOME", &path),
        );
        home.write("token", "a token of Kubernetes");
        home
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Makes a shell script the process of the profile `process`.
    fn process(&self, script: &str) {
        // Written beside and renamed: no one runs half of it.
        let path = self.folder.path().join("process.new");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::rename(path, self.folder.path().join("process")).expect("a script");
    }

    /// The SSO token, which ends so many seconds from now. `more` are other fields of it.
    fn sso_token(&self, name: &str, seconds: i64, more: &str) {
        let end = if seconds < 0 { "2020-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
        let text = format!("{{\"accessToken\": \"TOKEN\", \"expiresAt\": \"{end}\"{more}}}");
        self.write(name, &text);
    }

    fn apply(&self, command: &mut Command) {
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("HOME", self.folder.path()).env("AWS_EC2_METADATA_DISABLED", "true");
        for service in ["SSO", "SSO_OIDC", "STS", "SIGNIN"] {
            command.env(format!("AWS_ENDPOINT_URL_{service}"), &self.url);
        }
    }

    fn hand_out(&self, key: &str) {
        key.clone_into(&mut self.asked.lock().expect("a lock").key);
    }

    /// How many requests had this in them.
    fn asked(&self, what: &str) -> usize {
        let asked = self.asked.lock().expect("a lock");
        asked.requests.iter().filter(|request| request.contains(what)).count()
    }

    /// Mounts by this profile.
    fn mount(&self, profile: &str, change: impl FnOnce(&mut Command)) -> World {
        let key = self.asked.lock().expect("a lock").key.clone();
        World::with(bucket(&key), &["--profile", profile], |command| {
            self.apply(command);
            change(command);
        })
    }

    /// The message with which a mount by this profile fails.
    fn refusal(&self, profile: &str) -> String {
        let _watchdog = watchdog(Duration::from_secs(60));
        let server = bucket("KEY").bucket(BUCKET).start().expect("a server");
        let dir = self.folder.path().join("mnt");
        fs::create_dir_all(&dir).expect("a mount point");
        let mut command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground", "--profile", profile]);
        self.apply(&mut command);
        let output = run_with_timeout(&mut command, Duration::from_secs(45)).expect("s3mount");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().rfind(|line| line.starts_with("s3mount: "));
        last.unwrap_or_else(|| panic!("no message in {said}")).to_owned()
    }

    /// What the doctor says of the credentials of this profile.
    fn doctor(&self, server: &TestS3, profile: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
        command.args(["doctor", BUCKET, "--endpoint-url", &server.endpoint(), "--profile", profile]);
        command.env_clear().env("PATH", "/usr/bin:/bin");
        self.apply(&mut command);
        let output = run_with_timeout(&mut command, Duration::from_secs(60)).expect("a report");
        let said = String::from_utf8(output.stdout).expect("text");
        let line = said.lines().find(|line| line.contains(" credentials "));
        line.unwrap_or_else(|| panic!("no line in {said}")).to_owned()
    }
}

/// A bucket that takes this access key.
fn bucket(key: &str) -> Builder {
    (0..20).fold(TestS3::builder().credentials(key), |server, index| {
        server.synthetic(BUCKET, &format!("d/{index}"), 100 * KIB)
    })
}

fn read(world: &World, index: usize) {
    let key = format!("d/{index}");
    assert_eq!(check_file(&world.path(&key), &key), 100 * KIB);
}

/// Changes the key of the services and of the store, and reads on.
fn change_key(home: &Home, world: &World) {
    home.hand_out("SECOND");
    world.server.set_access_key("SECOND");
    for index in 1..5 {
        read(world, index);
    }
}

/// One server for all services. It tells them apart by what they are asked.
fn serve(asked: Arc<Mutex<Asked>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let request = request(&mut stream);
            let (key, refusal) = {
                let mut asked = asked.lock().expect("a lock");
                asked.requests.push(request.clone());
                (asked.key.clone(), asked.refusal)
            };
            let (status, body) = match refusal {
                Some((status, code)) => {
                    (status, format!("<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>"))
                }
                None => answer(&request, &key),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    url
}

/// The head and the body of a request.
fn request(stream: &mut impl Read) -> String {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        request.extend_from_slice(&piece[..len]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let expected = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= expected.map_or(0, |len| len.trim().parse().expect("a length")) {
            break;
        }
    }
    String::from_utf8_lossy(&request).into_owned()
}

fn answer(request: &str, key: &str) -> (&'static str, String) {
    let refuse = |code: &str| format!("{{\"__type\": \"{code}\", \"message\": \"no\"}}");
    if request.starts_with("GET /federation/credentials") {
        if !request.contains("x-amz-sso_bearer_token: TOKEN") {
            return ("401 Unauthorized", refuse("UnauthorizedException"));
        }
        let end = 4_070_908_800_000_u64;
        return (
            "200 OK",
            format!(
                "{{\"roleCredentials\": {{\"accessKeyId\": \"{key}\", \"secretAccessKey\": \"secret\", \
                 \"sessionToken\": \"token\", \"expiration\": {end}}}}}"
            ),
        );
    }
    if request.starts_with("POST /token") {
        let body = "{\"accessToken\": \"TOKEN\", \"expiresIn\": 3600, \"tokenType\": \"Bearer\"}";
        return ("200 OK", body.to_owned());
    }
    let action = ["AssumeRoleWithWebIdentity", "AssumeRole"]
        .into_iter()
        .find(|action| request.contains(&format!("Action={action}&")));
    let action = action.unwrap_or_else(|| panic!("{request} is asked for"));
    let body = format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
         <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>\
         <SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>\
         </{action}Result></{action}Response>"
    );
    ("200 OK", body)
}

#[test]
fn sso_sessions_give_keys_and_new_ones_in_time() {
    let home = Home::new("FIRST");
    home.sso_token(SSO_TOKEN, 1, "");
    home.sso_token(LEGACY_TOKEN, 1, "");
    let world = home.mount("sso", |_| {});
    read(&world, 0);
    assert_eq!(home.asked("role_name=Reader"), 1, "all requests share one search");
    change_key(&home, &world);
    let line = home.doctor(&world.server, "sso");
    assert!(
        line.contains("profile sso: SSO (aws sso login --profile sso), until 2099-01-01T00:00:00Z"),
        "{line}"
    );
    drop(world);
    let world = home.mount("legacy", |_| {});
    read(&world, 0);
    drop(world);
    // The profile may also come by the environment.
    let world = World::with(bucket("SECOND"), &[], |command| {
        home.apply(command);
        command.env("AWS_PROFILE", "sso");
    });
    read(&world, 0);
}

#[test]
fn an_sso_session_that_has_ended() {
    let home = Home::new("KEY");
    let login = "run `aws sso login --profile sso`";
    assert!(home.refusal("sso").contains("there is no SSO session that can be used"));
    home.sso_token(SSO_TOKEN, -1, "");
    let said = home.refusal("sso");
    assert!(said.contains(&format!("profile \"sso\": the SSO session has ended; {login}")), "{said}");
    let server = bucket("KEY").bucket(BUCKET).start().expect("a server");
    assert!(home.doctor(&server, "sso").contains(login));
    // The portal may refuse a token that looks good.
    home.write(SSO_TOKEN, "{\"accessToken\": \"OLD\", \"expiresAt\": \"2099-01-01T00:00:00Z\"}");
    let said = home.refusal("sso");
    assert!(said.contains(&format!("the SSO session has ended; {login}")), "{said}");
    // A role that is taken with it says whose session it is.
    let said = home.refusal("by-sso");
    assert!(said.contains("profile \"by-sso\": ") && said.contains(login), "{said}");
    home.write(SSO_TOKEN, "nonsense");
    assert!(home.refusal("sso").contains(login));
    // A session that can be renewed is.
    let client = ", \"clientId\": \"c\", \"clientSecret\": \"s\", \"refreshToken\": \"r\", \
                  \"registrationExpiresAt\": \"2099-01-01T00:00:00Z\"";
    home.sso_token(SSO_TOKEN, -1, client);
    read(&home.mount("sso", |_| {}), 0);
    assert_eq!(home.asked("POST /token"), 1);
}

#[test]
fn sso_sessions_are_begun_again_while_the_mount_waits() {
    let home = Home::new("FIRST");
    home.sso_token(SSO_TOKEN, 1, "");
    let world = home.mount("sso", |_| {});
    read(&world, 0);
    // The store takes the old keys no longer, and the session has ended.
    home.sso_token(SSO_TOKEN, -1, "");
    home.hand_out("SECOND");
    world.server.set_access_key("SECOND");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&world, 1));
        wait_for("the reason", || world.mount.stderr().contains("aws sso login --profile sso"));
        assert!(!reader.is_finished(), "it waits");
        home.sso_token(SSO_TOKEN, 1, "");
    });
    read(&world, 2);
}

/// A key for these tests, which protects nothing.
const DPOP_KEY: &str = "-----BEGIN EC PRIVATE KEY-----\\n\
    MHcCAQEEIL4nlcacW7R+eYD2zXT+bcdw3USs5fpCkiQCKWUdu6FGoAoGCCqGSM49\\n\
    AwEHoUQDQgAEDmiORxykDUsaDVkwjTNU6m0ORwQ1O4Hsus8m8yGW+ITRYP1pC5ap\\n\
    K3nCTp6E1PdM9YZ1tc7J11VL7amxULqx7w==\\n-----END EC PRIVATE KEY-----\\n";

#[test]
fn login_sessions_give_keys() {
    let home = Home::new("KEY");
    let said = home.refusal("login");
    assert!(said.contains("run `aws login --profile login`"), "{said}");
    let token = format!(
        "{{\"accessToken\": {{\"accessKeyId\": \"KEY\", \"secretAccessKey\": \"secret\", \"sessionToken\": \"t\", \
         \"accountId\": \"111122223333\", \"expiresAt\": \"2099-01-01T00:00:00Z\"}}, \"tokenType\": \"aws_sigv4\", \
         \"refreshToken\": \"r\", \"idToken\": \"i\", \"clientId\": \"c\", \"dpopKey\": \"{DPOP_KEY}\"}}"
    );
    home.write(LOGIN_TOKEN, &token);
    let world = home.mount("login", |_| {});
    read(&world, 0);
    let line = home.doctor(&world.server, "login");
    assert!(line.contains("login (aws login --profile login), until 2099-01-01T00:00:00Z"), "{line}");
}

/// A script that prints this key. It ends after so many seconds, if it ends.
fn prints(key: &str, seconds: Option<u64>) -> String {
    let end = seconds.map(|seconds| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
        let mut date = Command::new("date");
        date.args(["-u", "-d", &format!("@{}", now + seconds), "+%FT%TZ"]);
        format!(", \"Expiration\": \"{}\"", output(&mut date).trim())
    });
    format!(
        "echo '{{\"Version\": 1, \"AccessKeyId\": \"{key}\", \"SecretAccessKey\": \"secret\"{}}}'",
        end.unwrap_or_default()
    )
}

fn output(command: &mut Command) -> String {
    String::from_utf8(command.output().expect("a program").stdout).expect("text")
}

#[test]
fn processes_that_print_keys_are_run_again() {
    let home = Home::new("FIRST");
    home.process(&prints("FIRST", None));
    let world = home.mount("process", |_| {});
    read(&world, 0);
    home.process(&prints("SECOND", None));
    change_key(&home, &world);
    let line = home.doctor(&world.server, "process");
    assert!(line.contains("profile process: credential_process of profile process"), "{line}");
}

#[test]
fn keys_are_renewed_before_they_end_and_waited_for_afterwards() {
    let home = Home::new("KEY");
    let count = home.folder.path().join("count");
    let counted = |key, seconds| format!("echo >> {}\n{}", count.display(), prints(key, seconds));
    let runs = || fs::read_to_string(&count).map_or(0, |text| text.len());
    home.process(&counted("KEY", Some(6)));
    let world = home.mount("process", |_| {});
    read(&world, 0);
    // In the second half of their life they are renewed, and nobody waits for it.
    home.process(&counted("KEY", Some(8)));
    let mut index = 0;
    wait_for("another run", || {
        index = index % 10 + 1;
        read(&world, index);
        let _ = fs::metadata(world.path(&format!("d/none{index}{}", runs())));
        let _ = fs::metadata(world.path(&format!("none{:?}", SystemTime::now())));
        runs() > 1
    });
    // Then the process fails, and the last keys end.
    home.process("echo 'the vault is sealed' >&2; exit 3");
    std::thread::sleep(Duration::from_secs(9));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&world, 11));
        wait_for("the reason", || world.mount.stderr().contains("the vault is sealed"));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!reader.is_finished(), "it waits");
        home.process(&prints("KEY", None));
    });
    read(&world, 12);
}

#[test]
fn processes_that_fail_are_refused_with_what_they_said() {
    let home = Home::new("KEY");
    let fails = |script: &str, said: &str| {
        home.process(script);
        let message = home.refusal("process");
        let begin =
            "no credentials for bucket \"data\": profile \"process\": the credential_process of profile";
        assert!(message.contains(begin) && message.contains(said), "{message}, not {said}");
    };
    fails("echo 'no ticket' >&2; exit 7", "no ticket");
    fails("echo nonsense", "could not parse");
    fails("echo '{\"Version\": 1}'", "AccessKeyId");
    let message = {
        home.process(&prints("KEY", None).replace("}'", ", \"Expiration\": \"2020-01-01T00:00:00Z\"}'"));
        home.refusal("process")
    };
    assert!(message.contains("what came ended at 2020-01-01T00:00:00Z"), "{message}");
    // A process that hangs is killed, together with those that it has started.
    let pid = home.folder.path().join("pid");
    fails(
        &format!("sleep 1000 & echo $! > {}; wait", pid.display()),
        "did not end within 20s and was killed",
    );
    let pid = fs::read_to_string(pid).expect("a number");
    wait_for("its end", || {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn roles_are_taken_with_other_credentials() {
    let home = Home::new("FIRST");
    home.sso_token(SSO_TOKEN, 1, "");
    for (profile, roles) in [
        ("first", &["role%2Ffirst"][..]),
        ("second", &["role%2Ffirst", "role%2Fsecond"]),
        ("by-sso", &["role%2Fby-sso"]),
        ("web", &["role%2Fweb"]),
    ] {
        let before: Vec<_> = roles.iter().map(|role| home.asked(role)).collect();
        read(&home.mount(profile, |_| {}), 0);
        for (role, before) in roles.iter().zip(before) {
            assert_eq!(home.asked(role), before + 1, "{profile} takes {role}");
        }
    }
    let world = home.mount("by-environment", |command| {
        command.env("AWS_ACCESS_KEY_ID", "BASE").env("AWS_SECRET_ACCESS_KEY", "secret");
    });
    read(&world, 0);
    assert_eq!(home.asked("Credential=BASE/"), 3, "the role is asked for with the keys of the environment");
    change_key(&home, &world);
    // As Kubernetes has it (IRSA), with an address of STS.
    let key = home.asked.lock().expect("a lock").key.clone();
    let world = World::with(bucket(&key), &[], |command| {
        home.apply(command);
        command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
        command.env("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/of-pod");
        command.env("AWS_WEB_IDENTITY_TOKEN_FILE", home.folder.path().join("token"));
    });
    read(&world, 0);
    assert_eq!(home.asked("role%2Fof-pod"), 1);
    let line = home.doctor(&world.server, "second");
    assert!(line.contains("the role arn:aws:iam::111122223333:role/second, by the role"), "{line}");
}

/// Whoever waits for STS tries again. Whoever was refused does not.
#[test]
fn an_sts_that_does_not_work_has_refused_nobody() {
    let mut home = Home::new("KEY");
    let refusal_of = |home: &Home, answer| {
        home.asked.lock().expect("a lock").refusal = Some(answer);
        ["web", "first"].map(|profile| home.refusal(profile))
    };
    for answer in [("503 Service Unavailable", "ServiceUnavailable"), ("400 Bad Request", "Throttling")] {
        for said in refusal_of(&home, answer) {
            let expected = format!("STS cannot serve now ({})", answer.1);
            assert!(said.contains(&expected) && !said.contains("STS does not give"), "{said}");
        }
    }
    for said in refusal_of(&home, ("403 Forbidden", "AccessDenied")) {
        assert!(said.contains("STS does not give arn:aws:iam::111122223333:role/"), "{said}");
    }
    // Nobody listens there.
    home.url = "http://127.0.0.1:1".to_owned();
    for profile in ["web", "first"] {
        let said = home.refusal(profile);
        assert!(said.contains("cannot reach STS for arn:aws:iam::111122223333:role/"), "{said}");
        assert!(said.contains("Connection refused") && said.ends_with("AWS_ENDPOINT_URL_STS"), "{said}");
    }
}

#[test]
fn profiles_that_cannot_be_used_are_refused() {
    let home = Home::new("KEY");
    let said = home.refusal("mfa");
    assert!(said.contains("asks for a code of the device arn:aws:iam::111122223333:mfa/me"), "{said}");
    let said = home.refusal("typo");
    assert!(said.contains("the profile \"typo\" is neither in "), "{said}");
}
