//! Listings and errors as different stores write them. The form is the stores' own, the names are ours.

use std::time::SystemTime;

use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectClient as _};

use super::store::{Reply, Store, answer, run};

async fn list(xml: &'static str) -> ListPage {
    let store = Store::new(move |_| {
        Reply::Send(answer("200 OK", &["Content-Type: application/xml"], xml.as_bytes()))
    });
    let request = ListObjects { prefix: "d/".into(), delimiter: true, ..Default::default() };
    store.client().list_objects(request).await.expect(xml)
}

/// The key, the ETag, the size of an object, and its time in seconds.
type Shown<'a> = (&'a str, &'a str, u64, u64);

/// The objects and the prefixes of a page, and the token of the next page.
fn shown(page: &ListPage) -> (Vec<Shown<'_>>, Vec<&str>, Option<&str>) {
    let second =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |span| span.as_secs());
    let objects = page.objects.iter().map(|object| {
        let meta = &object.meta;
        (object.key.as_str(), meta.etag.as_str(), meta.size, second(meta.last_modified))
    });
    (objects.collect(), page.common_prefixes.iter().map(String::as_str).collect(), page.next.as_deref())
}

const WHEN: u64 = 1_255_369_830;

#[test]
fn listings() {
    // AWS sends checksums and their types, quotes as entities, and times with milliseconds.
    const AWS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>d/</Prefix><NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><Contents><Key>d/a+b%2Bc%C3%A9</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>&quot;e-17&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>5</Size><StorageClass>INTELLIGENT_TIERING</StorageClass></Contents><CommonPrefixes><Prefix>d/x+y/</Prefix></CommonPrefixes></ListBucketResult>"#;
    // MinIO sends other entities, an owner without a name, and a token that is a key with more text in it.
    const MINIO: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>d/</Prefix><StartAfter></StartAfter><NextContinuationToken>ZC9hIGJbbWluaW9fY2FjaGU6djJd</NextContinuationToken><KeyCount>2</KeyCount><MaxKeys>1</MaxKeys><Delimiter>/</Delimiter><IsTruncated>true</IsTruncated><Contents><Key>d/a+b%2Bc%C3%A9</Key><LastModified>2009-10-12T17:50:30.123Z</LastModified><ETag>&#34;e-17&#34;</ETag><Size>5</Size><Owner><ID></ID><DisplayName></DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>d/x%20y/</Prefix></CommonPrefixes><EncodingType>url</EncodingType></ListBucketResult>"#;
    // Ceph's gateway sends the elements in another order, with types and empty markers. It encodes nothing.
    const CEPH: &str = r#"<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>d/</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>d/a b+cé</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>&quot;e-17&quot;</ETag><Size>5</Size><StorageClass>STANDARD</StorageClass><Owner><ID>u</ID><DisplayName>U</DisplayName></Owner><Type>Normal</Type></Contents><CommonPrefixes><Prefix>d/x y/</Prefix></CommonPrefixes><Marker></Marker><NextMarker/></ListBucketResult>"#;
    // Google has another namespace and generations, and sends no storage class.
    const GOOGLE: &str = r#"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Name>b</Name><Prefix>d/</Prefix><IsTruncated>false</IsTruncated><Contents><Key>d/a b+cé</Key><Generation>1476739831420000</Generation><MetaGeneration>1</MetaGeneration><LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>"e-17"</ETag><Size>5</Size></Contents><CommonPrefixes><Prefix>d/x y/</Prefix></CommonPrefixes></ListBucketResult>"#;
    // versitygw sends empty elements.
    const VERSITY: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult><Contents><ChecksumAlgorithm></ChecksumAlgorithm><ChecksumType></ChecksumType><ETag>e-17</ETag><Key>d/a b+cé</Key><LastModified>2009-10-12T17:50:30Z</LastModified><Owner></Owner><RestoreStatus></RestoreStatus><Size>5</Size><StorageClass></StorageClass></Contents><CommonPrefixes><Prefix>d/x y/</Prefix></CommonPrefixes><EncodingType></EncodingType><IsTruncated>false</IsTruncated><NextContinuationToken></NextContinuationToken></ListBucketResult>"#;
    // This listing has a prefix for its namespace, a time zone, and white space wherever XML allows it.
    const SPACED: &str = r#"<?xml version="1.0"?>
<s3:ListBucketResult xmlns:s3="http://s3.amazonaws.com/doc/2006-03-01/">
  <s3:IsTruncated> false </s3:IsTruncated>
  <s3:EncodingType> url </s3:EncodingType>
  <s3:Contents>
    <s3:Key>d/a%20b%2bc%c3%a9</s3:Key>
    <s3:LastModified> 2009-10-12T19:50:30+02:00 </s3:LastModified>
    <s3:ETag> "e-17" </s3:ETag>
    <s3:Size> 5 </s3:Size>
  </s3:Contents>
  <s3:CommonPrefixes><s3:Prefix>d/x+y/</s3:Prefix></s3:CommonPrefixes>
</s3:ListBucketResult>"#;
    run(async {
        for (xml, next) in [
            (AWS, Some("1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=")),
            (MINIO, Some("ZC9hIGJbbWluaW9fY2FjaGU6djJd")),
            (CEPH, None),
            (GOOGLE, None),
            (VERSITY, None),
            (SPACED, None),
        ] {
            let page = list(xml).await;
            assert_eq!(
                shown(&page),
                (vec![("d/a b+cé", "\"e-17\"", 5, WHEN)], vec!["d/x y/"], next),
                "{xml}"
            );
        }
    });
}

#[test]
fn listings_of_nothing() {
    run(async {
        for xml in [
            r#"<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"#,
            "<ListBucketResult/>",
            "<ListBucketResult><Contents/></ListBucketResult>",
        ] {
            let page = list(xml).await;
            assert!(page.next.is_none() && page.common_prefixes.is_empty(), "{xml}");
            assert!(page.objects.iter().all(|object| object.key.is_empty()), "{xml}");
        }
    });
}

#[test]
fn errors() {
    let kind = |status: &'static str, body: &'static str| async move {
        let store = Store::new(move |_| Reply::Send(answer(status, &[], body.as_bytes())));
        let error = store.client().list_objects(ListObjects::default()).await.expect_err(body);
        error.kind().clone()
    };
    run(async {
        let cases = [
            (
                "403 Forbidden",
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>Access \
                 Denied.</Message><BucketName>b</BucketName><Resource>/b/</Resource><RequestId>1</RequestId>\
                 <HostId>h</HostId></Error>",
                ErrorKind::Forbidden,
            ),
            (
                "404 Not Found",
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>NoSuchBucket</Code><Message></Message>\
                 <BucketName>b</BucketName><RequestId>tx1</RequestId><HostId>z</HostId></Error>",
                ErrorKind::NoSuchBucket,
            ),
            (
                "403 Forbidden",
                "<?xml version='1.0' encoding='UTF-8'?><Error><Code>SignatureDoesNotMatch</Code><Message>M\
                 </Message><StringToSign>GOOG4</StringToSign></Error>",
                ErrorKind::BadCredentials,
            ),
            (
                "400 Bad Request",
                "<s:Error xmlns:s=\"u\"><s:Code>ExpiredToken</s:Code></s:Error>",
                ErrorKind::BadCredentials,
            ),
            ("404 Not Found", "<html><body>nothing here</body></html>", ErrorKind::NotFound),
            ("403 Forbidden", "", ErrorKind::Forbidden),
            ("501 Not Implemented", "{\"error\": \"JSON\"}", ErrorKind::Unsupported),
        ];
        for (status, body, expected) in cases {
            assert_eq!(kind(status, body).await, expected, "{status} {body}");
        }
    });
}
