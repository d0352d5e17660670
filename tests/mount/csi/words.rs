//! What Kubernetes is told of a volume that can't be: the code, and words of who has described it.

use prost::Message;
use s3mount_testkit::TestS3;
use tonic::{Code, Status};

use super::{Capability, Empty, Mode, Node, Publish, Texts, bucket, texts};

#[derive(Clone, PartialEq, Message)]
struct Create {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    capabilities: Vec<Capability>,
    #[prost(btree_map = "string, string", tag = "4")]
    parameters: Texts,
    #[prost(btree_map = "string, string", tag = "8")]
    mutable: Texts,
}

#[derive(Clone, PartialEq, Message)]
struct Validate {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    context: Texts,
    #[prost(message, repeated, tag = "3")]
    capabilities: Vec<Capability>,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(string, tag = "1")]
    id: String,
}

/// Checks a refusal.
fn check(refused: Result<(), Status>, code: Code, word: &str) {
    let refused = refused.expect_err(word);
    assert_eq!(refused.code(), code, "{refused}");
    let said = refused.message();
    assert!(said.contains(word), "{said}");
    for foreign in ["--", "Usage", "tip:", "\n"] {
        assert!(!said.contains(foreign), "{said}");
    }
}

#[test]
fn a_volume_that_can_not_be_is_told_in_its_words() {
    let node = Node::new(bucket().object("data", "full/object", b"bytes".to_vec()), &[]);
    let with = |pairs: &[(&str, &str)]| Publish { context: texts(pairs), ..node.publishing("v", "a") };
    let publish = |pairs: &[(&str, &str)]| node.publish(with(pairs));
    check(
        publish(&[("bucket", "no-such-bucket")]),
        Code::NotFound,
        "bucket \"no-such-bucket\" does not exist",
    );
    check(publish(&[("bucket", "s3://data")]), Code::InvalidArgument, "is a URL");
    check(publish(&[("bucket", "data"), ("prefix", "a\0")]), Code::InvalidArgument, "control character");
    for (option, word) in [
        ("memory-limit=1", "memory-limit 1B is too small"),
        ("part-size=1", "part-size"),
        ("help", "\"help\" is no option"),
        ("banana=1", "\"banana\" is no option"),
    ] {
        check(node.publish(node.publishing_with("v", "a", &[option])), Code::InvalidArgument, word);
    }
    let unreachable = node.publishing_with("v", "a", &["endpoint-url=http://127.0.0.1:1"]);
    check(node.publish(unreachable), Code::Unavailable, "cannot reach http://127.0.0.1:1");
    let mut odd = node.publishing("v", "a");
    odd.capability.as_mut().expect("a capability").mode = Some(Mode { mode: 99 });
    check(node.publish(odd), Code::InvalidArgument, "the access mode 99");
    let odd = Publish { target_path: "/a\0".to_owned(), ..node.publishing("v", "a") };
    check(node.publish(odd), Code::InvalidArgument, "zero byte");
    assert!(node.mounts().is_empty() && !node.target("a").exists());
    let create_named = |name: &str, bucket: &str, mutable: Texts| {
        let call = Create {
            name: name.to_owned(),
            capabilities: node.publishing("v", "a").capability.into_iter().collect(),
            parameters: texts(&[("bucket", bucket)]),
            mutable,
        };
        node.call("Controller", "CreateVolume", call).map(|Empty {}| ())
    };
    let create = |bucket: &str, mutable: Texts| create_named("pvc-1", bucket, mutable);
    check(create("no-such-bucket", Texts::new()), Code::NotFound, "does not exist");
    check(create("data", texts(&[("size", "1")])), Code::InvalidArgument, "mutable parameter \"size\"");
    create("data", Texts::new()).expect("made");
    create("data", Texts::new()).expect("it is there");
    // Objects of others would be deleted with the volume.
    check(create_named("full", "data", Texts::new()), Code::FailedPrecondition, "\"full/\" has objects");
    let validate = |id: &str, context: &[(&str, &str)]| {
        let call = Validate {
            id: id.to_owned(),
            context: texts(context),
            capabilities: node.publishing("v", "a").capability.into_iter().collect(),
        };
        node.call("Controller", "ValidateVolumeCapabilities", call).map(|Empty {}| ())
    };
    for (id, context) in [
        ("v", &[("bucket", "no-such-bucket")][..]),
        ("data/pvc-1", &[("bucket", "data"), ("madeForClaim", "true")]),
        ("s3://data/pvc-2/", &[]),
    ] {
        check(validate(id, context), Code::NotFound, id);
    }
    validate("v", &[("bucket", "data")]).expect("a bucket that is there");
    validate("s3://data/pvc-1/", &[]).expect("a volume that was made");
    // A claim whose bucket was deleted can be deleted, too.
    for id in ["s3://no-such-bucket/pvc-1/", "s3://data/pvc-1/"] {
        let call = Delete { id: id.to_owned() };
        node.call("Controller", "DeleteVolume", call).map(|Empty {}| ()).expect("nothing is left");
    }
    assert_eq!(node.server.keys("data"), ["full/object", "there"]);
}

/// Nobody has refused the pod: Kubernetes tries again, and whoever reads the event does not look for a fault in the role.
#[test]
fn an_sts_out_of_reach_is_no_refusal_of_the_pod() {
    let node = Node::new(bucket(), &[]);
    let token = r#"{"sts.amazonaws.com": {"token": "of-the-pod"}}"#;
    let context = texts(&[
        ("bucket", "data"),
        ("authenticationSource", "pod"),
        ("roleArn", "arn:aws:iam::111122223333:role/of-pod"),
        ("csi.storage.k8s.io/serviceAccount.tokens", token),
        ("csi.storage.k8s.io/serviceAccount.name", "trainer"),
        ("csi.storage.k8s.io/pod.namespace", "team"),
    ]);
    let refused = node.publish(Publish { context, ..node.publishing("v", "a") });
    check(refused, Code::Unavailable, "cannot reach STS for arn:aws:iam::111122223333:role/of-pod");
}

/// Kubernetes shows the difference to who has changed a volume that pods use.
#[test]
fn what_differs_from_the_volume_that_is_there_is_named() {
    let node = Node::new(TestS3::builder().object("data", "there", b"bytes".to_vec()).bucket("other"), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    let with = |context: &[(&str, &str)], options: &[&str], secrets: &[(&str, &str)]| Publish {
        context: texts(context),
        secrets: texts(secrets),
        ..node.publishing_with("v", "a", options)
    };
    let (same, keys) = (["memory-limit=128MiB"], [("key_id", "x"), ("access_key", "y")]);
    for (call, word) in [
        (with(&[("bucket", "other")], &same, &[]), "s3://data/, now: s3://other/"),
        (with(&[("bucket", "data")], &[same[0], "gid=5"], &[]), "the options (before: none, now: gid=5)"),
        (with(&[("bucket", "data")], &same, &keys), "the credentials (before: those of the driver"),
    ] {
        check(node.publish(call), Code::AlreadyExists, word);
    }
    node.unpublish("v", "a").expect("gone");
}
