//! Bytes are addressed by version: a GET of a version that was replaced is refused, and never answered with
//! bytes of the next one.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use s3mount_object::{ByteRange, ErrorKind, GetObject, ListObjects, ObjectClient, ObjectId};
use s3mount_testkit::MemoryClient;

/// The first `len` bytes of a version.
async fn read(client: &dyn ObjectClient, object: &ObjectId, len: u64) -> Result<String, ErrorKind> {
    let request = GetObject { object: object.clone(), range: ByteRange::new(0, len) };
    // The caller lends the memory. A mount lends a buffer of its pool, which is paid for beforehand.
    let answer = client.get_object(request, Box::new(vec![0; 64])).await;
    let answer = answer.map_err(|error| error.kind().clone())?;
    Ok(String::from_utf8_lossy(&answer.bytes).into_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = MemoryClient::new();
    client.put("notes/today.txt", "sun in the morning");

    let listing = ListObjects { prefix: "notes/".to_owned(), ..ListObjects::default() };
    let page = client.list_objects(listing).await.expect("a page");
    let found = page.objects.first().expect("the object");
    let object = ObjectId::new(&found.key, found.meta.etag.clone());
    println!("the listing names {object:?}, of {} bytes", found.meta.size);
    println!("its first three bytes: {:?}", read(&client, &object, 3).await);

    let next = client.put("notes/today.txt", "rain in the evening");
    println!("somebody replaces it by {next:?}");
    println!("a GET of the first version: {:?}", read(&client, &object, 3).await);
    println!("a GET of the second: {:?}", read(&client, &next, 4).await);
}
