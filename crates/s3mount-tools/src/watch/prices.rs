//! What the requests of a mount have cost.

use s3mount_bucket::{Outcome, ReadOperation, WriteOperation};

use super::metrics::ended;
use super::sample::Sample;

/// Prices in dollars.
///
/// The defaults are the list prices of S3 Standard in us-east-1, <https://aws.amazon.com/s3/pricing/>.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Prices {
    /// Dollars for 1,000 GETs and HEADs; the default is S3 Standard's list price in us-east-1
    /// (aws.amazon.com/s3/pricing).
    #[arg(long, value_name = "DOLLARS", default_value = "0.0004", value_parser = dollars, help_heading = "Prices")]
    pub(crate) price_get: f64,

    /// Dollars for 1,000 LISTs, PUTs, POSTs and copies; the default is S3 Standard's list price in
    /// us-east-1.
    #[arg(long, value_name = "DOLLARS", default_value = "0.005", value_parser = dollars, help_heading = "Prices")]
    pub(crate) price_put: f64,

    /// Dollars for each GB (of 1000 MB) that comes from the store; nothing inside a region.
    #[arg(long, value_name = "DOLLARS", default_value = "0", value_parser = dollars, help_heading = "Prices")]
    pub(crate) price_gb: f64,
}

/// How requests end that S3 takes money for. It takes none for 5xx, and answers that never came are unknown.
const CHARGED: [Outcome; 6] = [
    Outcome::Ok,
    Outcome::NotFound,
    Outcome::Forbidden,
    Outcome::Changed,
    Outcome::Rejected,
    Outcome::Cancelled,
];

/// Requests at the price of a GET.
const GETS: [ReadOperation; 4] =
    [ReadOperation::Get, ReadOperation::Head, ReadOperation::Attributes, ReadOperation::HeadBucket];

/// Requests at the price of a PUT, beside LISTs. DELETE and AbortMultipartUpload cost nothing.
const PUTS: [WriteOperation; 7] = [
    WriteOperation::Put,
    WriteOperation::CreateUpload,
    WriteOperation::UploadPart,
    WriteOperation::CopyPart,
    WriteOperation::CompleteUpload,
    WriteOperation::Copy,
    WriteOperation::Rename,
];

fn dollars(text: &str) -> Result<f64, String> {
    let price = text.trim_start_matches('$').parse::<f64>().ok();
    price
        .filter(|price| price.is_finite() && *price >= 0.0)
        .ok_or_else(|| "not a price; write dollars, such as 0.0004".to_owned())
}

impl Prices {
    /// What the mount's requests have cost since it was mounted, about. Requests to a shared cache are left out.
    pub(crate) fn so_far(&self, sample: &Sample) -> f64 {
        let metrics = &sample.metrics;
        let gets = ended(&metrics.requests, &GETS, &CHARGED);
        let lists = ended(&metrics.requests, &[ReadOperation::List], &CHARGED);
        let puts = lists + ended(&metrics.write_requests, &PUTS, &CHARGED);
        let gigabytes = metrics.fetched_bytes as f64 / 1e9;
        gets as f64 / 1e3 * self.price_get + puts as f64 / 1e3 * self.price_put + gigabytes * self.price_gb
    }
}

#[cfg(test)]
mod tests {
    use super::{Prices, dollars};
    use crate::watch::sample::Sample;

    #[test]
    fn requests_are_paid_by_kind() {
        let sample = Sample::parse(
            r#"{"requests_get_ok": 2000000, "requests_head_ok": 500000, "requests_get_server": 9000,
                "requests_list_ok": 1000, "write_requests_upload_part_ok": 10, "write_requests_put_changed": 2,
                "write_requests_create_upload_ok": 1, "write_requests_complete_upload_ok": 1,
                "write_requests_delete_ok": 500, "write_requests_put_throttled": 70,
                "fetched_bytes": 5000000000}"#,
        )
        .expect("JSON");
        let prices = Prices { price_get: 0.0004, price_put: 0.005, price_gb: 0.09 };
        let expected = 1.0 + 1.014 * 0.005 + 0.45;
        assert!((prices.so_far(&sample) - expected).abs() < 1e-9, "{}", prices.so_far(&sample));
    }

    #[test]
    fn prices_are_dollars() {
        assert_eq!(dollars("$0.02"), Ok(0.02));
        for text in ["-1", "NaN", "inf", "free", ""] {
            assert!(dollars(text).is_err(), "{text}");
        }
    }
}
