//! HEAD, LIST and the bucket: which requests the client sends, and how it reads the answers.

use std::time::{Duration, SystemTime};

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{ByteRange, ErrorKind, ListObjects, ObjectClient as _, ObjectWriter as _};

use super::store::{ETAG, Lent, Reply, Request, Store, answer, error, get, run};

#[test]
fn head_tells_the_version() {
    run(async {
        let store = Store::new(|_| {
            let etag = format!("ETag: {ETAG}");
            let headers = [
                etag.as_str(),
                "Last-Modified: Mon, 12 Oct 2009 17:50:30 GMT",
                "x-amz-storage-class: GLACIER",
            ];
            // The answer to a HEAD has the length of the body, but no body.
            let mut bytes = answer("200 OK", &headers, b"12345");
            bytes.truncate(bytes.len() - 5);
            Reply::Send(bytes)
        });
        let meta = store.client().head_object("dir/a b").await.unwrap();
        assert_eq!((meta.etag.as_str(), meta.size), (ETAG, 5));
        assert_eq!(meta.last_modified, SystemTime::UNIX_EPOCH + Duration::from_secs(1_255_369_830));
        assert_eq!(meta.storage_class.as_deref(), Some("GLACIER"));
        let seen = store.seen();
        assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("HEAD", "/bucket/dir/a%20b"));
    });
}

#[test]
fn all_requests_say_whose_the_bucket_is_and_who_pays() {
    run(async {
        let store = Store::new(|_| Reply::Send(error("403 Forbidden", "AccessDenied")));
        let config = CrtConfig {
            expected_bucket_owner: Some("111122223333".to_owned()),
            requester_pays: true,
            ..store.config()
        };
        let client = CrtClient::new(config).expect("a client");
        let _ = client.head_object("k").await;
        let _ = client.list_objects(ListObjects::default()).await;
        let (buffer, _lender) = Lent::new(10);
        let _ = client.get_object(get("k", ByteRange::new(0, 10)), buffer).await;
        let _ = client.delete("k", None).await;
        let seen = store.seen();
        assert!(seen.len() >= 4, "and one that keeps connections open");
        for request in seen {
            assert_eq!(request.headers["x-amz-expected-bucket-owner"], "111122223333");
            assert_eq!(request.headers["x-amz-request-payer"], "requester");
        }
        let _ = store.client().head_object("k").await;
        let last = store.seen().pop().expect("a request");
        assert!(!last.headers.contains_key("x-amz-request-payer"));
    });
}

#[test]
fn head_of_nothing_is_not_found() {
    run(async {
        let client = Store::new(|_| Reply::Send(answer("404 Not Found", &[], b""))).client();
        assert_eq!(*client.head_object("k").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(*client.head_bucket().await.unwrap_err().kind(), ErrorKind::NoSuchBucket);
    });
}

#[test]
fn an_answer_without_etag_is_refused() {
    run(async {
        let client = Store::new(|_| Reply::Send(answer("200 OK", &[], b""))).client();
        assert_eq!(*client.head_object("k").await.unwrap_err().kind(), ErrorKind::NoEtag);
    });
}

#[test]
fn list_asks_for_a_page_and_reads_it() {
    const PAGE: &str = "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>t/+=</NextContinuationToken>\
        <Contents><Key>d/a+b%2Bc%26%0A%F0%9F%A6%80</Key><Size>7</Size>\
        <LastModified>2009-10-12T17:50:30.000Z</LastModified>\
        <ETag>&quot;e1&quot;</ETag><StorageClass>STANDARD</StorageClass></Contents>\
        <CommonPrefixes><Prefix>d/%2B+/</Prefix></CommonPrefixes></ListBucketResult>";
    run(async {
        let store = Store::new(|_| Reply::Send(answer("200 OK", &[], PAGE.as_bytes())));
        let request = ListObjects {
            prefix: "d/+ &".to_owned(),
            delimiter: true,
            continuation: Some("t/+=".to_owned()),
            start_after: Some("d/ü".to_owned()),
            max_keys: Some(17),
        };
        let client = store.client();
        let page = client.list_objects(request).await.unwrap();
        assert_eq!(page.next.as_deref(), Some("t/+="));
        assert_eq!(page.common_prefixes, ["d/+ /"]);
        assert_eq!(page.objects.len(), 1);
        assert_eq!(page.objects[0].key, "d/a b+c&\n🦀");
        assert_eq!(page.objects[0].meta.etag.as_str(), "\"e1\"");
        client.list_objects(ListObjects::default()).await.unwrap();
        let seen = store.seen();
        assert_eq!(
            seen[0].path,
            "/bucket?continuation-token=t%2F%2B%3D&delimiter=%2F&encoding-type=url&list-type=2\
             &max-keys=17&prefix=d%2F%2B%20%26&start-after=d%2F%C3%BC"
        );
        assert_eq!(seen[1].path, "/bucket?encoding-type=url&list-type=2&prefix=");
    });
}

#[test]
fn a_page_that_is_none_is_refused() {
    run(async {
        let client = Store::new(|_| Reply::Send(answer("200 OK", &[], b"<html/>"))).client();
        let error = client.list_objects(ListObjects::default()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Integrity);
    });
}

#[test]
fn a_refused_list_keeps_what_the_store_said() {
    run(async {
        let client = Store::new(|_| Reply::Send(error("403 Forbidden", "AccessDenied"))).client();
        let error = client.list_objects(ListObjects::default()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Forbidden);
        assert_eq!(error.detail().code.as_deref(), Some("AccessDenied"));
    });
}

/// A store in eu-west-1, which answers `elsewhere` to a request that is signed for another region.
fn european(elsewhere: &'static str) -> Store {
    const REGION: &[&str] = &["x-amz-bucket-region: eu-west-1"];
    Store::new(move |request: &Request| {
        let here = request.headers["authorization"].contains("/eu-west-1/s3/");
        Reply::Send(answer(if here { "200 OK" } else { elsewhere }, REGION, b""))
    })
}

#[test]
fn connect_finds_the_region_out() {
    run(async {
        for elsewhere in ["301 Moved Permanently", "400 Bad Request", "403 Forbidden", "200 OK"] {
            let store = european(elsewhere);
            let config = CrtConfig { region: None, ..store.config() };
            let (client, info) = CrtClient::connect(config).await.unwrap();
            assert_eq!(info.region.as_deref(), Some("eu-west-1"), "{elsewhere}");
            client.head_bucket().await.unwrap();
            assert_eq!(store.seen().len(), 3, "{elsewhere}");
        }
    });
}

#[test]
fn a_region_that_was_given_is_kept() {
    run(async {
        let error = CrtClient::connect(european("400 Bad Request").config()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::WrongRegion(Some("eu-west-1".to_owned())));
    });
}

#[test]
fn a_refused_head_is_no_failure_to_connect() {
    run(async {
        let region = &["x-amz-bucket-region: us-east-1"];
        let store = Store::new(|_| Reply::Send(answer("403 Forbidden", region, b"")));
        let config = CrtConfig { region: None, ..store.config() };
        // Credentials that may read objects may still be refused for HeadBucket.
        let (client, _) = CrtClient::connect(config).await.unwrap();
        assert_eq!(*client.head_bucket().await.unwrap_err().kind(), ErrorKind::Forbidden);
    });
}

#[test]
fn the_anonymous_sign_nothing() {
    run(async {
        let store = Store::new(|_| Reply::Send(answer("200 OK", &[], b"")));
        let config = CrtConfig { credentials: Credentials::Anonymous, ..store.config() };
        CrtClient::connect(config).await.unwrap();
        assert!(!store.seen()[0].headers.contains_key("authorization"));
    });
}

#[test]
fn secrets_are_not_shown() {
    let store = Store::new(|_| Reply::Send(Vec::new()));
    let shown = format!("{:?} {:?}", store.config(), store.client());
    assert!(!shown.contains("wJalr"), "{shown}");
}

#[test]
fn a_profile_that_is_not_there_is_no_credentials() {
    run(async {
        let store = Store::new(|_| Reply::Send(answer("200 OK", &[], b"")));
        let config = CrtConfig {
            credentials: Credentials::Profile("s3mount-test-no-such-profile".to_owned()),
            ..store.config()
        };
        let error = CrtClient::connect(config).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NoCredentials, "{error}");
    });
}
