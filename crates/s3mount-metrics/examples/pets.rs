//! Defines the metrics of a layer, counts in them, and shows them as Prometheus text and as JSON.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use s3mount_metrics::{Counter, Family, Gauge, Histogram, Registry, bounds, labels, metrics};

labels! {
    /// What a pet does.
    pub enum Deed("deed") {
        /// It eats.
        Eat = "eat",
        /// It sleeps.
        Sleep = "sleep",
    }
}

metrics! {
    /// What is counted of pets.
    pub struct PetMetrics {
        /// Bytes of food that were eaten.
        food: Counter = ("s3mount_food_bytes_total", Bytes, Stable),
        /// How often pets did what.
        deeds: Family<Counter, Deed> = ("s3mount_deeds_total", Count, Experimental),
        /// How long pets took to come when they were called.
        come: Histogram = ("s3mount_come_seconds", Seconds, Stable, bounds::ANSWERS),
        /// Pets at home.
        at_home: Gauge = ("s3mount_at_home", Count, Stable),
    }
}

fn main() {
    // Each mount has a registry of its own, and each layer adds its struct to it.
    let (registry, pets) = (Registry::default(), Arc::new(PetMetrics::default()));
    let shown = pets.clone();
    // Gauges that somebody else keeps are brought up to date when they are shown.
    registry.add(pets.clone(), move || shown.at_home.set_len(2));

    // To count takes no lock and no look-up: a field, and the index of a label.
    pets.food.add(300);
    pets.deeds.at(Deed::Eat).inc();
    pets.deeds.at(Deed::Sleep).inc();
    pets.come.note_time(Duration::from_millis(20));
    pets.come.note_time(Duration::from_secs(60));

    println!("{}", registry.snapshot().prometheus());
    println!("{}", registry.snapshot().json());
}
